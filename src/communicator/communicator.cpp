// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/communicator.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <thread>

#include "base/log.hpp"
#include "communicator/batch.hpp"

namespace tutti {
namespace {

// A program with very many different counts would otherwise collect plans for ever.
constexpr std::size_t kMostPlans = 4096;
constexpr std::chrono::microseconds kRetreatLook{50};
constexpr std::chrono::milliseconds kLongestRetreat{100};

}  // namespace

Communicator::Communicator(const CommunicatorOptions& options)
    : options_(options), batch_(std::make_unique<Batch>(*this)) {}

Communicator::~Communicator() {
  if (control_) finalize();
}

std::shared_ptr<Communicator> Communicator::create(const CommunicatorOptions& options) {
  auto communicator = std::shared_ptr<Communicator>(new Communicator(options));
  communicator->join();
  return communicator;
}

void Communicator::break_everywhere(ncclResult_t code, const std::string& reason) {
  health_->fail(code, reason);
  control_->announce_failure(rank(), code, reason);
}

void Communicator::show_core() {
  auto core = static_cast<std::uint32_t>(sched_getcpu() + 1);
  if (board_->bell.core.load(std::memory_order_relaxed) != core)
    board_->bell.core.store(core, std::memory_order_relaxed);
}

bool Communicator::could_use_core(int rank) const {
  if (rank == options_.rank || !lanes_->is_on_this_host(rank)) return false;
  const RankBoard::Bell& other = lanes_->memory().board(rank).bell;
  return other.core.load(std::memory_order_relaxed) == board_->bell.core.load(std::memory_order_relaxed) &&
         (other.waiting.load(std::memory_order_relaxed) == 0 ||
          other.news.load(std::memory_order_relaxed) != 0);
}

void Communicator::wait_for_retreat() {
  if (std::exchange(retreated_, true)) return;
  common_->failed.store(1);
  const auto& members = lanes_->memory().members();
  auto is_here = [](const MemoryLanes::Member& member) { return member.process == getpid(); };
  std::ranges::all_of(members, is_here) ? heavy_fence() : heavy_fence_across_processes();
  auto start = std::chrono::steady_clock::now();
  for (const MemoryLanes::Member& member : members) {
    bool stuck = false;
    const auto& reaching = lanes_->memory().board(member.rank).status.reaching;
    while (reaching.load(std::memory_order_acquire) != 0 && !stuck) {
      std::this_thread::sleep_for(kRetreatLook);
      stuck = !is_here(member) && std::chrono::steady_clock::now() - start > kLongestRetreat;
    }
  }
}

void Communicator::finalize() {
  if (finalized_.exchange(true)) return;
  std::uint64_t ticket = issue();
  await_turn(ticket);
  end_turn();
  if (board_ != nullptr) board_->status.left.store(1);
  if (lanes_ && !health_->is_broken())
    control_->leave();
  else
    control_->announce_failure(rank(), ncclRemoteError,
                               fmt::format("rank {} has left a broken communicator", rank()));
}

void Communicator::abort() {
  std::string reason = fmt::format("rank {} aborted the communicator", rank());
  control_->announce_failure(rank(), ncclRemoteError, reason);
  control_->interrupt(ncclRemoteError, reason);
  health_->fail(ncclRemoteError, reason);
  finalize();
}

void Communicator::wait_for_turn(std::uint64_t ticket) {
  waiting_for_turn_.fetch_add(1);
  heavy_fence();
  for (std::uint64_t now = served_.load(); now != ticket; now = served_.load()) served_.wait(now);
  waiting_for_turn_.fetch_sub(1);
}

Shape Communicator::shape_of(const Operation& operation) const {
  Shape shape{.collective = operation.collective,
              .ranks = ranks(),
              .rank = rank(),
              .root = operation.root,
              .count = operation.count,
              .slice = lanes_->memory().segment().layout().slice / size_of(operation.type),
              .hosts = network_ ? &network_->hosts() : nullptr};
  if (operation.input == nullptr || operation.output == nullptr) return shape;
  shape.in_place = static_cast<const std::byte*>(operation.output) ==
                   static_cast<const std::byte*>(operation.input) + in_place_bytes(shape, operation.type);
  return shape;
}

std::size_t Communicator::PlanKeyHash::operator()(const PlanKey& key) const {
  std::size_t hash = key.count;
  for (auto part : {static_cast<std::size_t>(key.collective), static_cast<std::size_t>(key.type),
                    static_cast<std::size_t>(key.kind), static_cast<std::size_t>(key.in_place),
                    static_cast<std::size_t>(key.root)})
    hash = (hash ^ part) * 0x9E3779B97F4A7C15U + (hash >> 29);
  return hash;
}

bool Communicator::trim_plans() {
  if (plans_.size() < kMostPlans) return false;
  plans_.clear();
  last_plans_.fill(nullptr);
  return true;
}

const Plan& Communicator::plan(const Operation& operation) {
  if (const Plan* repeated = plan_of_repeated(operation)) return *repeated;
  Shape shape = shape_of(operation);
  PlanKey key{operation.collective, operation.type, operation.op.kind,
              shape.in_place,       operation.root, operation.count};
  auto found = plans_.find(key);
  if (found == plans_.end()) found = plans_.emplace(key, new_plan(operation, shape)).first;
  last_plans_[static_cast<std::size_t>(operation.collective)] = found->second.get();
  return *found->second;
}

bool Communicator::copies_once(const Shape& shape, Algorithm algorithm, std::size_t bytes) const {
  // Not where a step combines what arrives, nor where blocks are overwritten before they have been read.
  if (is_reducing(shape.collective) || algorithm != Algorithm::direct) return false;
  if (shape.collective == Collective::all_to_all && shape.in_place) return false;
  bool one_to_one = is_point_to_point(shape.collective) || shape.collective == Collective::scatter;
  return bytes >= single_copy_.from && (one_to_one || !single_copy_.one_to_one_only);
}

std::unique_ptr<Plan> Communicator::new_plan(const Operation& operation, Shape shape) {
  Signature signature{0, operation.collective, operation.type, operation.op.kind, Algorithm::direct,
                      0, operation.count};
  std::size_t bytes = operation.count * size_of(operation.type);
  bool point_to_point = is_point_to_point(operation.collective);
  if (point_to_point) {
    signature.collective = Collective::send;  // so that the two ends can meet
  } else {
    signature.algorithm = select(operation.collective, ranks(), bytes, filter_, costs_, network_.get());
    if (has_root(operation.collective)) signature.root = operation.root;
    log_info("rank {}: {} of {} x {}: {}", rank(), name_of(operation.collective), operation.count,
             name_of(operation.type), name_of(signature.algorithm));
  }
  Schedule schedule = point_to_point ? tutti::point_to_point(shape) : build(signature.algorithm, shape);
  StoreTuner& tuner = tuners_[{operation.collective, shape.in_place, std::bit_width(bytes)}];
  auto plan = make_plan(schedule, shape, signature.algorithm, operation.type, operation.op.kind, *lanes_,
                        store_policy_, tuner);
  plan->header = signature.pack();
  plan->single_copy = plan->tcp == nullptr && copies_once(shape, signature.algorithm, bytes);
  return plan;
}

std::optional<Signature> Communicator::announced(int of_rank, std::uint32_t sequence) const {
  auto header = lanes_->memory().board(of_rank).calls[sequence % RankBoard::kCalls].get();
  if (!header) return std::nullopt;
  Signature signature = Signature::unpack(*header);
  if (signature.sequence != sequence) return std::nullopt;
  return signature;
}

std::optional<std::string> Communicator::find_mismatch() const {
  std::uint32_t oldest = sequence_ < RankBoard::kCalls ? 1 : sequence_ - RankBoard::kCalls + 1;
  for (std::uint32_t number = oldest; number <= sequence_; ++number) {
    auto own = announced(rank(), number);
    for (const MemoryLanes::Member& member : lanes_->memory().members())
      if (auto other = announced(member.rank, number); own && other && other->pack() != own->pack())
        return fmt::format("ranks made different calls: rank {} {}, rank {} {}", rank(), own->in_words(),
                           member.rank, other->in_words());
  }
  return std::nullopt;
}

bool Communicator::has_left(int rank) const {
  // What it sent before may be on its way still.
  return health_->has_left(rank) && (lanes_->is_on_this_host(rank) || lanes_->tcp()->is_through(rank));
}

int Communicator::create_operator(DataType type, const void* scalar, bool read_when_run) {
  PreMulSum op{type, 0, read_when_run ? scalar : nullptr};
  if (!read_when_run) std::memcpy(&op.factor, scalar, size_of(type));
  std::lock_guard lock(operators_mutex_);
  auto free = std::find(operators_.begin(), operators_.end(), std::nullopt);
  if (free == operators_.end()) free = operators_.insert(free, std::nullopt);
  *free = op;
  return static_cast<int>(ncclNumOps) + static_cast<int>(free - operators_.begin());
}

void Communicator::destroy_operator(int op) {
  std::lock_guard lock(operators_mutex_);
  auto index = static_cast<std::size_t>(op - static_cast<int>(ncclNumOps));
  if (op < static_cast<int>(ncclNumOps) || index >= operators_.size() || !operators_[index])
    fail(ncclInvalidArgument, "ncclRedOpDestroy: {} is no operator that this communicator made", op);
  operators_[index].reset();
}

Operator Communicator::find_operator(int op, DataType type) {
  std::lock_guard lock(operators_mutex_);
  auto index = static_cast<std::size_t>(op - static_cast<int>(ncclNumOps));
  if (op < 0 || index >= operators_.size() || !operators_[index])
    fail(ncclInvalidArgument,
         "operator {} is neither one of ncclSum..ncclAvg nor one that this communicator made (and did not "
         "destroy)",
         op);
  const PreMulSum& found = *operators_[index];
  if (found.type != type)
    fail(ncclInvalidArgument, "operator {} was made for {}, the call is about {}", op, name_of(found.type),
         name_of(type));
  Operator result{OperatorKind::premul_sum, found.factor};
  if (found.pointer != nullptr) std::memcpy(&result.scalar, found.pointer, size_of(type));
  return result;
}

}  // namespace tutti
