// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/directory.hpp"

namespace tutti {

void Directory::add(const std::shared_ptr<Connection>& connection, WireReader& registration) {
  int ranks = registration.get<int>();
  int rank = registration.get<int>();
  int groups = registration.get<int>();
  int group = registration.get<int>();
  Member member{connection, read_addresses(registration), registration.get_text()};
  auto refuse_late = [&] {
    connection->send(MessageType::refused, WireWriter().put(refused_code_).put(refused_reason_));
  };
  if (refused_code_ != ncclSuccess) return refuse_late();
  if (members_.empty()) {
    ranks_ = ranks;
    groups_ = groups;
    group_ = group;
    if (limit_.count() > 0)
      Service::instance().at(std::chrono::steady_clock::now() + limit_, [self = weak_from_this()] {
        if (auto directory = self.lock()) directory->check_deadline();
      });
  }
  if (ranks != ranks_ || groups != groups_) {
    const auto& [other, first] = *members_.begin();
    refuse(ncclInvalidArgument,
           fmt::format(
               "rank {} ({}) joins with {} ranks and {} ids, rank {} ({}) with {} ranks and {} ids: all must "
               "give the same numbers",
               rank, member.who, ranks, groups, other, first.who, ranks_, groups_));
    return refuse_late();
  }
  if (auto present = members_.find(rank); present != members_.end()) {
    refuse(ncclInvalidArgument,
           fmt::format("two callers joined as rank {}: {} and {}", rank, present->second.who, member.who));
    return refuse_late();
  }
  members_.emplace(rank, std::move(member));
  connection->set_handlers({.opened = {},
                            .message =
                                [self = weak_from_this(), rank](MessageType type, WireReader& message) {
                                  if (auto directory = self.lock())
                                    directory->on_message(rank, type, message);
                                },
                            .closed =
                                [self = weak_from_this(), rank](const std::string&) {
                                  if (auto directory = self.lock()) directory->on_closed(rank);
                                }});
  auto [begin, end] = waiting_.equal_range(rank);
  std::vector<int> askers;
  for (auto at = begin; at != end; ++at) askers.push_back(at->second);
  waiting_.erase(rank);
  for (int asker : askers) answer(asker, rank);
}

void Directory::on_message(int rank, MessageType type, WireReader& message) {
  if (type == MessageType::joined) {
    members_.at(rank).joined = true;
    members_.at(rank).connection->close();
    bool all = name_missing().empty();
    for (auto& [number, member] : members_) all = all && member.joined;
    if (all) Service::instance().post(finished_);
  } else if (type == MessageType::look_up) {
    int wanted = message.get<int>();
    if (members_.contains(wanted))
      answer(rank, wanted);
    else
      waiting_.emplace(wanted, rank);
  }
}

void Directory::answer(int rank, int wanted) {
  WireWriter found;
  write_addresses(found, members_.at(wanted).addresses);
  members_.at(rank).connection->send(MessageType::found, found);
}

void Directory::on_closed(int rank) {
  Member& member = members_.at(rank);
  if (!member.joined && refused_code_ == ncclSuccess)
    refuse(ncclRemoteError,
           fmt::format("rank {} ({}) went away while the communicator was being made", rank, member.who));
}

void Directory::check_deadline() {
  std::string missing = name_missing();
  if (missing.empty()) return;
  refuse(
      ncclSystemError,
      fmt::format("after {} s these of {} ranks have not joined: {}; are all of them running, with the same "
                  "id? (TUTTI_INIT_TIMEOUT sets the time)",
                  static_cast<double>(limit_.count()) / 1000, ranks_, missing));
}

std::string Directory::name_missing() const {
  std::string names;
  int listed = 0;
  for (int r = group_; r < ranks_; r += groups_) {
    if (members_.contains(r)) continue;
    if (++listed > 20) return names + " ...";
    names += (names.empty() ? "" : ", ") + std::to_string(r);
  }
  return names;
}

void Directory::refuse(ncclResult_t code, const std::string& reason) {
  refused_code_ = code;
  refused_reason_ = reason;
  for (auto& [rank, member] : members_)
    if (!member.joined) member.connection->send(MessageType::refused, WireWriter().put(code).put(reason));
}

}  // namespace tutti
