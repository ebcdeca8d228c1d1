// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/interfaces.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <memory>
#include <set>
#include <span>
#include <sstream>

#include "base/settings.hpp"

namespace tutti {
namespace {

// As in NCCL_SOCKET_IFNAME: prefixes, `=` for whole names, `^` for all others.
struct InterfaceFilter {
  explicit InterfaceFilter(std::string text) {
    // "^=" and "=^" do not exist in NCCL; the first sign counts.
    if (text.starts_with('^')) exclude = true;
    if (text.starts_with('=')) exact = true;
    if (exclude || exact) text.erase(0, 1);
    std::istringstream stream(text);
    for (std::string name; std::getline(stream, name, ',');) names.push_back(name);
  }
  bool accepts(const std::string& interface) const {
    bool named = false;
    for (const std::string& name : names)
      named = named || (exact ? interface == name : interface.starts_with(name));
    return named != exclude;
  }
  bool exclude = false, exact = false;
  std::vector<std::string> names;
};

std::span<const unsigned char> bytes_of(const sockaddr* address) {
  if (address->sa_family == AF_INET)
    return {reinterpret_cast<const unsigned char*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr),
            4};
  return {reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr, 16};
}

int count_bits(const sockaddr* mask) {
  if (mask == nullptr) return 0;
  int bits = 0;
  for (unsigned char byte : bytes_of(mask)) bits += std::popcount(byte);
  return bits;
}

int speed_of(const std::string& interface) {
  int megabits = 0;
  std::ifstream file("/sys/class/net/" + interface + "/speed");
  return file >> megabits && megabits > 0 ? megabits : 0;
}

int wanted_family() {
  std::string text = setting_text("NCCL_SOCKET_FAMILY");
  if (text.empty()) return AF_UNSPEC;
  if (text == "AF_INET") return AF_INET;
  if (text == "AF_INET6") return AF_INET6;
  fail(ncclInvalidArgument, "NCCL_SOCKET_FAMILY={}: expected AF_INET or AF_INET6", text);
}

bool is_link_local(const Interface& interface) {
  return interface.address.family() == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(interface.address.get())->sin6_addr);
}

// Lower is better: within one interface, and of those that nobody named.
int awkwardness(const Interface& interface) {
  bool bridge = interface.name.starts_with("docker") || interface.name.starts_with("virbr") ||
                interface.name.starts_with("br-") || interface.name.starts_with("podman");
  return interface.name == "lo" ? 2 : bridge ? 1 : 0;
}
bool is_better_address(const Interface& a, const Interface& b) {
  if (is_link_local(a) != is_link_local(b)) return is_link_local(b);
  return a.address.family() == AF_INET && b.address.family() == AF_INET6;
}

std::vector<Interface> all_interfaces(int family) {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail_errno("listing the network interfaces");
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    int own = at->ifa_addr->sa_family;
    if ((own != AF_INET && own != AF_INET6) || (family != AF_UNSPEC && own != family)) continue;
    Interface interface {
      at->ifa_name, Address(at->ifa_addr, own == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6)),
          count_bits(at->ifa_netmask), speed_of(at->ifa_name)
    };
    auto same = std::ranges::find(found, interface.name, &Interface::name);
    if (same == found.end())
      found.push_back(interface);
    else if (is_better_address(interface, *same))
      *same = interface;
  }
  return found;
}

// Where nobody chose: of the least awkward the fastest, so that a slow port for maintenance is not given half
// of the data.
std::vector<Interface> best_of(std::vector<Interface> interfaces) {
  auto keep_best = [&](auto rank) {
    int best = rank(*std::ranges::min_element(interfaces, {}, rank));
    std::erase_if(interfaces, [&](const Interface& interface) { return rank(interface) != best; });
  };
  if (interfaces.empty()) return interfaces;
  keep_best(awkwardness);
  keep_best([](const Interface& interface) { return is_link_local(interface) ? 1 : 0; });
  keep_best([](const Interface& interface) { return -interface.megabits; });
  return interfaces;
}

bool is_in_network(const Address& address, const Interface& interface) {
  if (address.family() != interface.address.family()) return false;
  auto a = bytes_of(address.get());
  auto b = bytes_of(interface.address.get());
  for (std::size_t bit = 0; bit < static_cast<std::size_t>(interface.prefix_bits); ++bit)
    if (((a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1) != 0) return false;
  return true;
}

}  // namespace

std::vector<Interface> chosen_interfaces() {
  std::string setting = setting_text("NCCL_SOCKET_IFNAME");
  int family = wanted_family();
  std::vector<Interface> all = all_interfaces(family);
  std::vector<Interface> chosen = all;
  if (setting.empty()) {
    chosen = best_of(all);
  } else {
    InterfaceFilter filter(setting);
    std::erase_if(chosen, [&](const Interface& interface) { return !filter.accepts(interface.name); });
    if (filter.exclude) chosen = best_of(chosen);
  }
  if (!chosen.empty()) return chosen;
  std::string names;
  for (const Interface& interface : all)
    names +=
        fmt::format("{}{} ({})", names.empty() ? "" : ", ", interface.name, interface.address.to_string());
  fail(ncclInvalidUsage, "NCCL_SOCKET_IFNAME={} NCCL_SOCKET_FAMILY={}: no interface fits; there are {}",
       setting, setting_text("NCCL_SOCKET_FAMILY"), names.empty() ? "none" : names);
}

bool is_direct(const Address& address, const std::vector<Interface>& ours) {
  return std::ranges::any_of(ours, [&](const Interface& own) { return is_in_network(address, own); });
}

std::vector<Address> nearest_first(std::vector<Address> addresses, const std::vector<Interface>& ours) {
  std::stable_partition(addresses.begin(), addresses.end(),
                        [&](const Address& address) { return is_direct(address, ours); });
  return addresses;
}

int direct_ways(const std::vector<Address>& addresses, const std::vector<Interface>& ours) {
  std::set<std::string> networks;
  for (const Address& address : addresses)
    for (const Interface& own : ours)
      if (is_in_network(address, own)) networks.insert(own.name);
  return std::max(1, static_cast<int>(networks.size()));
}

}  // namespace tutti
