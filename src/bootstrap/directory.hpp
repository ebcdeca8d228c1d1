// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>
#include <map>
#include <memory>
#include <vector>

#include "bootstrap/connection.hpp"

namespace tutti {

/// The rendezvous of one id: ranks register where they listen and ask for their parents in the control tree.
/// When it cannot become a communicator (a rank missing at the deadline, two with one number, different
/// sizes, one that died) every rank, present and late, is told why. All [service].
///
/// With several ids (ncclCommInitRankScalable) directory g of G serves the ranks r with r % G == g.
class Directory : public std::enable_shared_from_this<Directory> {
 public:
  /// `finished` is called when all ranks have joined.
  Directory(std::chrono::milliseconds limit, std::function<void()> finished)
      : limit_(limit), finished_(std::move(finished)) {}
  void add(const std::shared_ptr<Connection>& connection, WireReader& registration);

 private:
  struct Member {
    std::shared_ptr<Connection> connection;
    std::vector<Address> addresses;
    std::string who;  // "pid 12 on host a"
    bool joined = false;
  };
  void on_message(int rank, MessageType type, WireReader& message);
  void on_closed(int rank);
  void answer(int rank, int wanted);
  void check_deadline();
  void refuse(ncclResult_t code, const std::string& reason);
  std::string name_missing() const;

  std::chrono::milliseconds limit_;
  std::function<void()> finished_;
  int ranks_ = 0;
  int groups_ = 1, group_ = 0;
  std::map<int, Member> members_;
  std::multimap<int, int> waiting_;  // wanted rank -> who asked
  ncclResult_t refused_code_ = ncclSuccess;
  std::string refused_reason_;
};

}  // namespace tutti
