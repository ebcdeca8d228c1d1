// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/unique_id.hpp"

namespace tutti {

/// "pid 12 on host": this process, for others to read.
std::string describe_process();

/// One rank's place in a communicator's control tree (the parent of r is (r-1)/2): made by join(), up as long
/// as the communicator lives. Carries all-gathers of small contributions and news of ranks that fail or
/// leave.
class Control : public std::enable_shared_from_this<Control> {
 public:
  struct Parameters {
    std::vector<UniqueId> ids;  ///< one, or several for ncclCommInitRankScalable
    int ranks = 1;
    int rank = 0;
    std::chrono::milliseconds limit{0};    ///< for joining; 0: none
    std::chrono::milliseconds silence{0};  ///< after which a neighbour is given up; 0: never
    /// News, told on the service thread: a rank failed (code and reason for all), or left.
    std::function<void(int rank, ncclResult_t code, const std::string& reason)> on_failure;
    std::function<void(int rank)> on_left;
    /// Whether a rank is known by other means to have left, when its connection ends without a word.
    std::function<bool(int rank)> has_left;
    /// "rank 3 (pid 12 on host)", for messages.
    std::function<std::string(int rank)> name;
  };

  static std::shared_ptr<Control> create(Parameters parameters);
  ~Control();

  /// Blocks until all ranks have joined. Throws what the rendezvous says when they cannot.
  void join();
  /// Blocks until every rank has called it; all get all contributions, by rank. Calls must come in the same
  /// order on all ranks. Throws when a rank fails meanwhile.
  std::vector<std::string> all_gather(const std::string& contribution);
  /// Tells all ranks that the communicator is broken. Never blocks.
  void announce_failure(int rank, ncclResult_t code, const std::string& reason);
  /// Tells all ranks that this one leaves in good order; the endpoint goes on passing news until its
  /// neighbours have left too. Never blocks.
  void leave();

  int rank() const { return parameters_.rank; }
  const Secret& secret() const { return secret_; }
  /// Who takes connections by which other ranks want to exchange data with this one: called on the service
  /// thread, with the rank and what else its message says. Blocks until that is so.
  using LinkTaker =
      std::function<void(const std::shared_ptr<Connection>& connection, int from, WireReader& message)>;
  void take_links(LinkTaker taker);
  const std::shared_ptr<Realm>& realm() const { return realm_; }
  // [service]
  void accept_child(const std::shared_ptr<Connection>& connection, int child);
  void accept_link(const std::shared_ptr<Connection>& connection, int from, WireReader& message);
  /// Ends join() and all_gather() in other threads with this error.
  void interrupt(ncclResult_t code, const std::string& reason);

 private:
  explicit Control(Parameters parameters);

  struct Round {
    std::map<int, std::string> parts;
    std::size_t subtrees = 0;  // children that have contributed
    bool own = false;
  };

  // [service]
  void start();
  void connect_directory(int group);
  void on_directory_message(MessageType type, WireReader& message);
  void on_directory_closed(int group, const std::string& reason);
  void connect_parent(const std::vector<Address>& addresses);
  void on_link_message(int peer, MessageType type, WireReader& message);
  void on_link_closed(int peer, const std::string& reason);
  void check_ready();
  void beat();
  void lose_neighbour(int peer, const std::string& reason);
  void advance_round(std::uint32_t number);
  void on_table(WireReader& message);
  void on_notice(int from, WireReader& message);
  void spread_notice(int except, ncclResult_t code, int rank, const std::string& reason);
  void finish(std::uint32_t number, const std::vector<std::string>& table);
  void close_if_alone();
  bool is_ready();
  void interrupt_unless_refused(ncclResult_t code, const std::string& reason);

  int parent() const { return parameters_.rank == 0 ? -1 : (parameters_.rank - 1) / 2; }
  std::vector<int> children() const;
  void wait(std::unique_lock<std::mutex>& lock, const std::function<bool()>& ready);

  Parameters parameters_;
  Secret secret_;
  std::shared_ptr<Realm> realm_;

  // [service]
  std::map<int, std::shared_ptr<Connection>> directories_;  // by group
  std::map<int, std::shared_ptr<Connection>> links_;        // by neighbour
  LinkTaker link_taker_;
  std::map<int, std::chrono::steady_clock::time_point> heard_;  // last, of neighbours
  std::map<std::uint32_t, Round> rounds_;
  std::set<int> left_, failed_;
  bool attached_ = false;  // to the parent
  bool leaving_ = false;

  std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  bool ready_ = false;
  std::uint32_t next_round_ = 0;
  std::map<std::uint32_t, std::vector<std::string>> results_;
  ncclResult_t error_ = ncclSuccess;
  std::string error_text_;
};

}  // namespace tutti
