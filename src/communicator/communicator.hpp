// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "algorithms/select.hpp"
#include "bootstrap/control.hpp"
#include "communicator/health.hpp"
#include "communicator/signature.hpp"
#include "executor/execution.hpp"
#include "transport/memory_lane.hpp"

namespace tutti {

class Batch;

/// Lets another thread end a join that is under way or yet to begin. Thread-safe.
class JoinAbort {
 public:
  void request();
  /// By the joining rank: what is to be interrupted, at once if the request came before.
  void watch(const std::shared_ptr<Control>& control);

 private:
  static void interrupt(Control& control);
  std::mutex mutex_;
  bool requested_ = false;
  std::weak_ptr<Control> control_;
};

/// What a communicator is made from.
struct CommunicatorOptions {
  std::vector<UniqueId> ids;
  int ranks = 1;
  int rank = 0;
  int device = 0;
  bool blocking = true;
  std::string name;
  std::shared_ptr<JoinAbort> join_abort;  ///< may be null
};

/// One rank of a communicator. Operations run one batch after the other, in the order in which they were
/// issued (take_turn), on whatever thread executes them; different communicators are independent.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Blocks until all ranks have joined.
  static std::shared_ptr<Communicator> create(const CommunicatorOptions& options);
  ~Communicator();

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks; }
  int device() const { return options_.device; }
  bool blocking() const { return options_.blocking; }
  const std::string& name() const { return options_.name; }
  Health& health() { return *health_; }

  /// Collective: the contributions of all ranks, by rank.
  std::vector<std::string> all_gather(const std::string& contribution) {
    health_->check();
    return control_->all_gather(contribution);
  }

  /// Makes the communicator unusable for this reason, here and on all other ranks.
  void break_everywhere(ncclResult_t code, const std::string& reason);
  /// Waits for issued operations, then tells the others that this rank leaves. Idempotent.
  void finalize();
  bool is_finalized() const { return finalized_.load(std::memory_order_relaxed); }
  /// As finalize, without waiting for anything but threads that are inside a call, whom it makes return.
  void abort();

  // Turns.
  std::uint64_t issue() { return issued_.fetch_add(1); }
  void await_turn(std::uint64_t ticket);
  void end_turn();

  // For batches, within a turn.
  /// Forgets plans when they have become too many; before any of a batch's is used.
  void trim_plans();
  const Plan& plan(const Operation& operation);
  CallHeader announce(const Operation& operation, const Plan& plan);
  CallHeader point_to_point_header(const Operation& operation) const;
  Batch& batch() { return *batch_; }
  Doorbell bell() const { return lanes_->doorbell(options_.rank); }
  int spins() const { return spins_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  std::chrono::milliseconds stall_warning() const { return stall_warning_; }
  /// The words for the earliest of the latest collectives that another rank has announced otherwise, if any.
  std::optional<std::string> find_mismatch() const;
  bool has_left(int rank) const;

  // PreMulSum operators of this communicator. Thread-safe.
  int create_operator(DataType type, const void* scalar, bool read_when_run);
  void destroy_operator(int op);
  /// The operator with its factor. Throws ncclInvalidArgument when it does not exist or is of another type.
  Operator find_operator(int op, DataType type);

 private:
  explicit Communicator(const CommunicatorOptions& options);
  void join();
  void watch_processes(const std::vector<int>& pids);
  std::optional<Signature> announced(int of_rank, std::uint32_t sequence) const;
  Shape shape_of(const Operation& operation) const;

  struct PlanKey {
    Collective collective;
    DataType type;
    OperatorKind kind;
    bool in_place;
    int root;
    std::size_t count;
    bool operator==(const PlanKey&) const = default;
  };
  struct PlanKeyHash {
    std::size_t operator()(const PlanKey& key) const;
  };
  struct PreMulSum {
    DataType type;
    std::uint64_t factor;
    const void* pointer;  // read when the operation is called, if not null
  };

  CommunicatorOptions options_;
  std::shared_ptr<Health> health_ = std::make_shared<Health>();
  std::shared_ptr<Control> control_;
  std::unique_ptr<MemoryLanes> lanes_;
  AlgorithmFilter filter_;
  CostParameters costs_;
  StorePolicy store_policy_;
  int spins_ = 0;
  std::chrono::milliseconds timeout_{0}, stall_warning_{0};

  std::atomic<std::uint64_t> issued_{0}, served_{0};
  std::atomic<bool> finalized_{false};
  std::uint32_t sequence_ = 0;
  std::unique_ptr<Batch> batch_;
  std::unordered_map<PlanKey, std::unique_ptr<Plan>, PlanKeyHash> plans_;
  PlanKey last_key_{};
  const Plan* last_plan_ = nullptr;

  std::mutex operators_mutex_;
  std::vector<std::optional<PreMulSum>> operators_;
};

}  // namespace tutti
