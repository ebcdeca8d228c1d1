// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/unique_id.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/settings.hpp"
#include "bootstrap/service.hpp"

namespace tutti {
namespace {

constexpr std::uint64_t kMagic = 0x3244495449545554;  // "TUTITID2"

// Whether "host:port" names the loopback as such: an address or localhost.
bool is_local_only(const std::string& address) {
  std::string host = address.substr(0, address.rfind(':'));
  return host == "localhost" || host.find_first_not_of("0123456789.") == std::string::npos ||
         host.starts_with('[');
}

}  // namespace

ncclUniqueId UniqueId::pack() const {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(std::string(reinterpret_cast<const char*>(secret.bytes.data()), secret.bytes.size()));
  writer.put(static_cast<std::uint8_t>(agreed_ports));
  ncclUniqueId id{};
  std::vector<Address> fitting = rendezvous;
  auto with_addresses = [&] {
    WireWriter whole = writer;
    write_addresses(whole, fitting);
    return whole.bytes();
  };
  while (fitting.size() > 1 && with_addresses().size() > sizeof id.internal) fitting.pop_back();
  std::string bytes = with_addresses();
  std::memcpy(id.internal, bytes.data(), bytes.size());
  return id;
}

UniqueId UniqueId::unpack(const ncclUniqueId& id) {
  try {
    WireReader reader(std::string(id.internal, sizeof id.internal));
    UniqueId result;
    if (reader.get<std::uint64_t>() != kMagic) throw Error(ncclInvalidArgument, "");
    std::string secret = reader.get_text();
    if (secret.size() != result.secret.bytes.size()) throw Error(ncclInvalidArgument, "");
    std::memcpy(result.secret.bytes.data(), secret.data(), secret.size());
    result.agreed_ports = reader.get<std::uint8_t>();
    result.rendezvous = read_addresses(reader);
    if (result.rendezvous.empty()) throw Error(ncclInvalidArgument, "");
    return result;
  } catch (const Error&) {
    fail(ncclInvalidArgument,
         "the unique id was not made by this library's ncclGetUniqueId, or was not copied whole ({} bytes)",
         sizeof id.internal);
  }
}

std::vector<Address> UniqueId::places() const {
  std::vector<Address> result;
  for (int i = 0; i < std::max(agreed_ports, 1); ++i)
    for (Address address : rendezvous) {
      address.set_port(static_cast<std::uint16_t>(address.port() + i));
      result.push_back(address);
    }
  return result;
}

UniqueId make_unique_id() {
  std::string address = setting_text("NCCL_COMM_ID");
  if (!address.empty()) return unique_id_at(address, setting_text("TUTTI_JOB_SECRET"));
  UniqueId id{Service::instance().listen_addresses(), Secret::random()};
  Service::instance().host_directory(id.secret, setting_seconds("TUTTI_INIT_TIMEOUT"));
  return id;
}

UniqueId unique_id_at(const std::string& address, const std::string& secret, int ports) {
  UniqueId id{{Address::parse(address)}, Secret::derive(fmt::format("{} {} {}", address, geteuid(), secret))};
  Address& first = id.rendezvous[0];
  id.agreed_ports = std::clamp(65536 - first.port(), 1, ports);
  // Debian's /etc/hosts gives a host's own name an address of the loopback, where other hosts do not come.
  if (first.is_loopback() && !is_local_only(address))
    for (const Interface& interface : Service::instance().interfaces()) {
      id.rendezvous.push_back(interface.address);
      id.rendezvous.back().set_port(first.port());
    }
  return id;
}

}  // namespace tutti
