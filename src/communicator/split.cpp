// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/split.hpp"

#include <algorithm>
#include <tuple>

#include "base/settings.hpp"

namespace tutti {
namespace {

// What a rank wants of a split.
struct Member {
  int color = 0, key = 0, rank = 0;
};

Member read_member(const std::string& bytes, int rank) {
  WireReader reader(bytes);
  Member member;
  member.color = reader.get<int>();
  member.key = reader.get<int>();
  member.rank = rank;
  return member;
}

}  // namespace

std::shared_ptr<Communicator> split(Communicator& parent, int color, int key, CommunicatorOptions options) {
  std::vector<Member> members;
  auto choices = parent.all_gather(WireWriter().put(color).put(key).bytes());
  for (std::size_t r = 0; r < choices.size(); ++r) {
    members.push_back(read_member(choices[r], static_cast<int>(r)));
    int its_color = members.back().color;
    // Checked here and not before the exchange, so that the other ranks learn of it too.
    if (its_color < 0 && its_color != NCCL_SPLIT_NOCOLOR)
      fail(ncclInvalidArgument,
           "ncclCommSplit: rank {} gave colour {}: expected 0 or more, or NCCL_SPLIT_NOCOLOR", r, its_color);
  }
  std::erase_if(members, [&](const Member& m) { return m.color != color || color == NCCL_SPLIT_NOCOLOR; });
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.key, a.rank) < std::tie(b.key, b.rank);
  });
  bool leads = !members.empty() && members[0].rank == parent.rank();
  std::string id_bytes;
  if (leads) {
    UniqueId own{Service::instance().listen_addresses(), Secret::random()};
    Service::instance().host_directory(own.secret, setting_seconds("TUTTI_INIT_TIMEOUT"));
    ncclUniqueId packed = own.pack();
    id_bytes.assign(packed.internal, sizeof packed.internal);
  }
  auto ids = parent.all_gather(id_bytes);
  if (members.empty()) return nullptr;
  ncclUniqueId packed{};
  const std::string& leader_id = ids[static_cast<std::size_t>(members[0].rank)];
  if (leader_id.size() != sizeof packed.internal)
    fail(ncclInternalError, "ncclCommSplit: no id from the leader");
  std::memcpy(packed.internal, leader_id.data(), leader_id.size());
  options.ids = {UniqueId::unpack(packed)};
  options.ranks = static_cast<int>(members.size());
  auto self =
      std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.rank == parent.rank(); });
  options.rank = static_cast<int>(self - members.begin());
  return Communicator::create(options);
}

}  // namespace tutti
