// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/unique_id.hpp"

#include <cstring>

namespace tutti {
namespace {
constexpr std::uint64_t kMagic = 0x3144495449545554;  // "TUTITID1"
}

ncclUniqueId UniqueId::pack() const {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(std::string(reinterpret_cast<const char*>(secret.bytes.data()), secret.bytes.size()));
  writer.put(rank_0_serves);
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
    result.rank_0_serves = reader.get<std::uint8_t>() != 0;
    result.rendezvous = read_addresses(reader);
    if (result.rendezvous.empty()) throw Error(ncclInvalidArgument, "");
    return result;
  } catch (const Error&) {
    fail(ncclInvalidArgument,
         "the unique id was not made by this library's ncclGetUniqueId, or was not copied whole ({} bytes)",
         sizeof id.internal);
  }
}

}  // namespace tutti
