// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <memory>
#include <sstream>
#include <vector>

#include "base/settings.hpp"

namespace tutti {
namespace {

struct InterfaceFilter {
  explicit InterfaceFilter(std::string text) {
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

}  // namespace

Address::Address(const sockaddr* address, socklen_t size) : size_(size) {
  std::memcpy(&storage_, address, size);
}

Address Address::parse(const std::string& text) {
  auto colon = text.rfind(':');
  if (colon == std::string::npos)
    fail(ncclInvalidArgument, "\"{}\" is not an address: expected host:port", text);
  std::string host = text.substr(0, colon);
  if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (int error = getaddrinfo(host.c_str(), text.substr(colon + 1).c_str(), &hints, &found); error != 0)
    fail(ncclInvalidArgument, "the address \"{}\" could not be resolved: {}", text, gai_strerror(error));
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  return {found->ai_addr, found->ai_addrlen};
}

Address Address::of_interface() {
  std::string setting = setting_text("NCCL_SOCKET_IFNAME");
  if (setting.empty()) return parse("127.0.0.1:0");
  InterfaceFilter filter(setting);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) fail_errno("listing the network interfaces");
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::string names;
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    int family = at->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    Address address(at->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    if (filter.accepts(at->ifa_name)) return address;
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", at->ifa_name, address.to_string());
  }
  fail(ncclInvalidUsage, "NCCL_SOCKET_IFNAME={}: no interface fits; there are {}", setting, names);
}

std::uint16_t Address::port() const {
  return ntohs(family() == AF_INET ? reinterpret_cast<const sockaddr_in*>(&storage_)->sin_port
                                   : reinterpret_cast<const sockaddr_in6*>(&storage_)->sin6_port);
}

void Address::set_port(std::uint16_t port) {
  if (family() == AF_INET)
    reinterpret_cast<sockaddr_in*>(&storage_)->sin_port = htons(port);
  else
    reinterpret_cast<sockaddr_in6*>(&storage_)->sin6_port = htons(port);
}

std::string Address::to_string() const {
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(get(), size_, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return family() == AF_INET6 ? fmt::format("[{}]:{}", host.data(), port())
                              : fmt::format("{}:{}", host.data(), port());
}

void Address::write(WireWriter& writer) const {
  writer.put(std::string(reinterpret_cast<const char*>(&storage_), size_));
}

Address Address::read(WireReader& reader) {
  std::string bytes = reader.get_text();
  Address address;
  if (bytes.size() > sizeof address.storage_) fail(ncclSystemError, "an address of {} bytes", bytes.size());
  std::memcpy(&address.storage_, bytes.data(), bytes.size());
  address.size_ = static_cast<socklen_t>(bytes.size());
  bool valid = (address.family() == AF_INET && bytes.size() == sizeof(sockaddr_in)) ||
               (address.family() == AF_INET6 && bytes.size() == sizeof(sockaddr_in6));
  if (!valid) fail(ncclSystemError, "a peer sent an address that is none");
  return address;
}

}  // namespace tutti
