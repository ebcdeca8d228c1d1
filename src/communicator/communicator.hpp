// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "algorithms/select.hpp"
#include "base/fence.hpp"
#include "bootstrap/control.hpp"
#include "communicator/health.hpp"
#include "communicator/signature.hpp"
#include "executor/execution.hpp"
#include "transport/lanes.hpp"

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

/// Which messages between processes their receivers copy straight out of the senders' memory, instead of
/// through slots: those of at least `from` bytes, and perhaps only where each has one sender and one
/// receiver.
struct SingleCopyPolicy {
  std::size_t from = SIZE_MAX;
  bool one_to_one_only = true;
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

/// While it lives, a rank may read and write the buffers of others as their messages say, if it says so: not
/// any more once the operation of one of them has failed, who may give its buffers away then.
class Reach {
 public:
  Reach(RankBoard& board, const CommonBoard& common) : reaching_(board.status.reaching) {
    reaching_.store(1, std::memory_order_relaxed);
    light_fence();
    allowed_ = common.failed.load(std::memory_order_acquire) == 0;
  }
  ~Reach() { reaching_.store(0, std::memory_order_release); }
  Reach(const Reach&) = delete;
  Reach& operator=(const Reach&) = delete;
  explicit operator bool() const { return allowed_; }

 private:
  std::atomic<std::uint32_t>& reaching_;
  bool allowed_;
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
  std::uint64_t issue() { return issued_.fetch_add(1, std::memory_order_relaxed); }
  void await_turn(std::uint64_t ticket) {
    if (served_.load(std::memory_order_acquire) != ticket) wait_for_turn(ticket);
  }
  void end_turn() {
    served_.store(served_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    light_fence();
    if (waiting_for_turn_.load(std::memory_order_relaxed) != 0) served_.notify_all();
  }

  // For batches, within a turn.
  /// Forgets all plans when they have become too many; before any of a batch's is used. Whether it did.
  bool trim_plans();
  const Plan& plan(const Operation& operation);
  /// The plan of the last call of this collective, if the operation differs from it in nothing but addresses.
  const Plan* plan_of_repeated(const Operation& operation) const;
  /// What the messages of the operation say; a collective is given its number and put on the notice board.
  CallHeader announce(const Plan& plan);
  Reach reach() const { return {*board_, *common_}; }
  /// After an operation of this rank has failed, before its caller learns of it: when this returns, no other
  /// rank reads or writes this rank's buffers any more. Waits for slices that are being copied, and 0.1 s at
  /// most for those of another process: it may have been stopped or killed at that point.
  void wait_for_retreat();
  Batch& batch() { return *batch_; }
  Doorbell bell() const { return lanes_->memory().doorbell(options_.rank); }
  /// For drive(): where the network tells that there may be something to do.
  int poll_file() const { return lanes_->tcp() != nullptr ? lanes_->tcp()->poll_file() : -1; }
  void take_events() {
    if (lanes_->tcp() != nullptr) lanes_->tcp()->take_events();
  }
  int spins() const { return spins_; }
  /// More ranks than cores.
  bool is_crowded() const { return crowded_; }
  /// Where ranks share cores, they show whether they wait, and see whether they are in each other's way.
  void look_for_news() {
    if (is_crowded() && board_->bell.news.load(std::memory_order_relaxed) != 0)
      board_->bell.news.store(0, std::memory_order_relaxed);
  }
  void show_waiting(bool waiting) {
    if (is_crowded() && board_->bell.waiting.load(std::memory_order_relaxed) != (waiting ? 1U : 0U))
      board_->bell.waiting.store(waiting ? 1 : 0, std::memory_order_relaxed);
  }
  /// Which core the calling thread runs on.
  void show_core();
  /// Whether another rank on the core that was shown last has something to do.
  bool could_use_core(int rank) const;
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
  void open_control();
  std::shared_ptr<HostSegment> share_segment(const SegmentLayout& layout, const MemoryLanes::Member& leader,
                                             const std::string& leader_socket);
  void wait_for_turn(std::uint64_t ticket);
  void watch_processes();
  std::optional<Signature> announced(int of_rank, std::uint32_t sequence) const;
  Shape shape_of(const Operation& operation) const;
  std::unique_ptr<Plan> new_plan(const Operation& operation, Shape shape);
  bool copies_once(const Shape& shape, Algorithm algorithm, std::size_t bytes) const;

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
  std::unique_ptr<NetworkModel> network_;  // of ranks on several hosts
  std::unique_ptr<Lanes> lanes_;
  RankBoard* board_ = nullptr;  // this rank's, in the segment
  CommonBoard* common_ = nullptr;
  bool retreated_ = false;  // the others have, from this rank's buffers
  AlgorithmFilter filter_;
  CostParameters costs_;
  StorePolicy store_policy_;
  std::map<std::tuple<Collective, bool, int>, StoreTuner> tuners_;  // in place, length of the bytes in bits
  SingleCopyPolicy single_copy_;
  int spins_ = 0;
  bool crowded_ = false;
  std::chrono::milliseconds timeout_{0}, stall_warning_{0};

  std::atomic<std::uint64_t> issued_{0}, served_{0};
  std::atomic<int> waiting_for_turn_{0};
  std::atomic<bool> finalized_{false};
  std::uint32_t sequence_ = 0;
  std::unique_ptr<Batch> batch_;
  std::unordered_map<PlanKey, std::unique_ptr<Plan>, PlanKeyHash> plans_;
  std::array<const Plan*, kCollectiveCount + 2> last_plans_{};  // by collective

  std::mutex operators_mutex_;
  std::vector<std::optional<PreMulSum>> operators_;
};

inline const Plan* Communicator::plan_of_repeated(const Operation& operation) const {
  const Plan* plan = last_plans_[static_cast<std::size_t>(operation.collective)];
  if (plan == nullptr || operation.count != plan->shape.count || operation.type != plan->type ||
      operation.op.kind != plan->kind || operation.root != plan->shape.root)
    return nullptr;
  bool input = operation.input != nullptr;
  bool output = operation.output != nullptr;
  if ((plan->needs_input && !input) || (plan->needs_output && !output)) return nullptr;
  bool in_place = input && output &&
                  static_cast<const std::byte*>(operation.output) ==
                      static_cast<const std::byte*>(operation.input) + plan->in_place_bytes;
  return in_place == plan->shape.in_place ? plan : nullptr;
}

inline CallHeader Communicator::announce(const Plan& plan) {
  if (is_point_to_point(plan.shape.collective)) return plan.header;
  CallHeader call = Signature::numbered(plan.header, ++sequence_);
  board_->calls[sequence_ % RankBoard::kCalls].put(call);
  return call;
}

}  // namespace tutti
