// SPDX-License-Identifier: BSD-3-Clause
#include "communicator/batch.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace tutti {
namespace {

constexpr int kPollsForOthers = 20;  // before a rank makes way for those whom it does not wait for

/// Ends a turn whatever happens.
class Turn {
 public:
  Turn(Communicator& communicator, std::uint64_t ticket) : communicator_(&communicator) {
    communicator.await_turn(ticket);
  }
  Turn(Turn&& other) noexcept : communicator_(std::exchange(other.communicator_, nullptr)) {}
  Turn& operator=(Turn&&) = delete;
  ~Turn() {
    if (communicator_ != nullptr) communicator_->end_turn();
  }

 private:
  Communicator* communicator_;
};

}  // namespace

Batch::Batch(Communicator& communicator) : communicator_(communicator) {
  chains_.push_back(std::make_unique<Chain>());  // run() counts on the first
}

Batch::Chain& Batch::next_chain(const Operation& first) {
  if (used_ == chains_.size()) chains_.push_back(std::make_unique<Chain>());
  Chain& chain = *chains_[used_++];
  chain.operations.clear();
  chain.next = 0;
  chain.peer = is_point_to_point(first.collective) ? first.root : -1;
  chain.direction = first.collective;
  return chain;
}

Batch::Chain& Batch::chain_for(const Operation& operation) {
  int peer = is_point_to_point(operation.collective) ? operation.root : -1;
  for (std::size_t i = 0; i < used_; ++i)
    if (chains_[i]->peer == peer && (peer < 0 || chains_[i]->direction == operation.collective))
      return *chains_[i];
  return next_chain(operation);
}

void Batch::reset() {
  used_ = 0;
  warned_ = false;
  if (error_) error_ = nullptr;
}

// What a batch keeps books about matters to those who wait; as long as nothing fails and nobody is long in
// coming, the execution alone will do.
//
// There is no error from before: what ended with one has broken the communicator, which is then not run
// again.
void Batch::run(const Operation& operation, const Plan& plan) {
  Execution& execution = chains_[0]->execution;
  bool finished = false;
  try {
    execution.start(plan, operation.input, operation.output, communicator_.announce(plan),
                    operation.op.scalar);
    int spins = communicator_.is_crowded() ? 0 : communicator_.spins();  // drive() knows whom to make way for
    if (Reach reach = communicator_.reach()) finished = poll(execution, spins);
  } catch (const CallMismatch& mismatch) {
    adopt(operation);
    end_with_mismatch(mismatch);
  } catch (...) {
    adopt(operation);
    end_with_error();
  }
  if (finished) return;
  if (!error_) {
    adopt(operation);
    Work* work = this;
    drive({&work, 1});
  }
  throw_error();
}

void Batch::throw_error() {
  if (!error_) return;
  communicator_.wait_for_retreat();
  std::rethrow_exception(error_);
}

// Makes the operation, which the first chain's execution is in the midst of, the batch's only one.
void Batch::adopt(const Operation& operation) {
  reset();
  Chain& chain = next_chain(operation);
  chain.operations.push_back(&operation);
  chain.next = 1;
  unfinished_ = 1;
}

void Batch::start(std::span<const Operation> operations) {
  if (communicator_.trim_plans())
    for (auto& chain : chains_) chain->execution.forget();
  reset();
  for (const Operation& operation : operations) chain_for(operation).operations.push_back(&operation);
  unfinished_ = used_;
  try {
    communicator_.health().check();
    for (std::size_t i = 0; i < used_; ++i)
      if (!start_next(*chains_[i])) --unfinished_;
  } catch (...) {
    end_with_error();
  }
}

// False when the chain has come to its end.
bool Batch::start_next(Chain& chain) {
  while (chain.next < chain.operations.size()) {
    const Operation& operation = *chain.operations[chain.next++];
    const Plan& plan = communicator_.plan(operation);
    chain.execution.start(plan, operation.input, operation.output, communicator_.announce(plan),
                          operation.op.scalar);
    if (!chain.execution.done()) return true;
  }
  return false;
}

bool Batch::progress() {
  if (done()) return false;
  bool moved = false;
  communicator_.look_for_news();
  try {
    if (communicator_.health().is_broken()) communicator_.health().check();
    Reach reach = communicator_.reach();
    if (!reach) return false;  // the news of what failed is on its way
    for (std::size_t i = 0; i < used_; ++i) {
      Chain& chain = *chains_[i];
      if (chain.execution.done()) continue;
      if (chain.execution.progress()) moved = true;
      if (chain.execution.done() && !start_next(chain)) --unfinished_;
    }
    communicator_.show_waiting(!moved);
    return moved;
  } catch (const CallMismatch& mismatch) {
    end_with_mismatch(mismatch);
  } catch (...) {
    end_with_error();
  }
  return true;
}

// The message shows where the two sides have run apart; the notice board, where that began.
void Batch::end_with_mismatch(const CallMismatch& mismatch) {
  std::string reason = communicator_.find_mismatch().value_or(
      fmt::format("ranks made different calls: rank {} {}, rank {} {}", communicator_.rank(),
                  Signature::unpack(mismatch.ours).in_words(), mismatch.peer,
                  Signature::unpack(mismatch.theirs).in_words()));
  communicator_.break_everywhere(ncclInvalidUsage, reason);
  error_ = std::make_exception_ptr(Error(ncclInvalidUsage, reason));
  unfinished_ = 0;
}

// The lanes are left in the middle of something: the communicator cannot be used any more, here and
// elsewhere.
void Batch::end_with_error() {
  error_ = std::current_exception();
  unfinished_ = 0;
  if (communicator_.health().is_broken()) return;
  try {
    std::rethrow_exception(error_);
  } catch (const Error& error) {
    communicator_.break_everywhere(error.code(), error.what());
  } catch (const std::exception& error) {
    communicator_.break_everywhere(ncclSystemError, error.what());
  }
}

// A switch to another rank and back takes as long as several hundred polls. Who must run for this rank to go
// on gets the core at once, if there is something for it to do. Who is needed no more waits for the same
// messages as this rank, likely, which come sooner if nobody switches. The others do their own things.
bool Batch::should_make_way(int polls) const {
  if (!communicator_.is_crowded()) return false;
  communicator_.show_core();
  auto executions = std::span(chains_).first(used_);
  auto holds_up = [this](int rank) { return communicator_.could_use_core(rank); };
  auto awaits = [&](const auto& chain) { return chain->execution.awaits(holds_up); };
  if (std::ranges::any_of(executions, awaits)) return true;
  if (polls < kPollsForOthers) return false;
  for (int rank = 0; rank < communicator_.ranks(); ++rank) {
    auto takes = [&](const auto& chain) { return chain->execution.takes_from(rank); };
    if (communicator_.could_use_core(rank) && std::ranges::none_of(executions, takes)) return true;
  }
  return false;
}

bool Batch::waits_for_collective() const {
  for (std::size_t i = 0; i < used_; ++i)
    if (chains_[i]->peer < 0 && !chains_[i]->execution.done()) return true;
  return false;
}

std::optional<int> Batch::blocker_that_left() const {
  for (std::size_t i = 0; i < used_; ++i)
    for (const Blocker& blocker : chains_[i]->execution.blockers())
      if (communicator_.has_left(blocker.rank)) return blocker.rank;
  return std::nullopt;
}

std::string Batch::waits_in_words() const {
  std::string words;
  for (std::size_t i = 0; i < used_; ++i) {
    const Chain& chain = *chains_[i];
    if (chain.execution.done()) continue;
    const Operation& operation = *chain.operations[chain.next - 1];
    for (const Blocker& blocker : chain.execution.blockers())
      words += fmt::format("{}rank {} ({} in nccl{}, count {})", words.empty() ? "" : ", ", blocker.rank,
                           blocker.for_message ? "a message" : "room", name_of(operation.collective),
                           operation.count);
  }
  return words;
}

void Batch::stalled(std::chrono::milliseconds since) {
  auto give_up = [this](ncclResult_t code, const std::string& reason) {
    communicator_.break_everywhere(code, reason);
    error_ = std::make_exception_ptr(Error(code, reason));
    unfinished_ = 0;
  };
  if (waits_for_collective())
    if (auto words = communicator_.find_mismatch()) return give_up(ncclInvalidUsage, *words);
  if (auto gone = blocker_that_left()) {
    // It stored its last message before it left: with one more look this rank has seen all that will ever
    // come.
    if (progress() || done()) return;
    if (blocker_that_left() == gone)
      return give_up(ncclRemoteError,
                     fmt::format("rank {} has left (finalized) the communicator while rank {} waits for {}",
                                 *gone, communicator_.rank(), waits_in_words()));
  }
  if (communicator_.stall_warning().count() > 0 && since >= communicator_.stall_warning() && !warned_) {
    warned_ = true;
    log_warning("rank {} has been waiting for {} s for {}", communicator_.rank(),
                static_cast<double>(since.count()) / 1000, waits_in_words());
  }
  if (communicator_.timeout().count() > 0 && since >= communicator_.timeout())
    give_up(ncclSystemError,
            fmt::format("timeout (TUTTI_TIMEOUT): rank {} has waited {} s for {}", communicator_.rank(),
                        static_cast<double>(since.count()) / 1000, waits_in_words()));
}

static void finish(Batch& batch) {
  Work* work = &batch;
  drive({&work, 1});
  batch.throw_error();
}

void execute(const Launch& launch) {
  Turn turn(*launch.communicator, launch.ticket);
  launch.communicator->batch().start(launch.operations);
  finish(launch.communicator->batch());
}

void execute(std::span<const Launch> launches) {
  std::vector<Turn> turns;
  std::vector<Work*> works;
  turns.reserve(launches.size());
  for (const Launch& launch : launches) {
    turns.emplace_back(*launch.communicator, launch.ticket);
    launch.communicator->batch().start(launch.operations);
    works.push_back(&launch.communicator->batch());
  }
  drive(works);
  std::exception_ptr first_error;
  for (const Launch& launch : launches) try {
      launch.communicator->batch().throw_error();
    } catch (...) {
      if (!first_error) first_error = std::current_exception();
    }
  if (first_error) std::rethrow_exception(first_error);
}

void execute(Communicator& communicator, const Operation& operation) {
  Turn turn(communicator, communicator.issue());
  communicator.batch().start({&operation, 1});
  finish(communicator.batch());
}

bool execute_repeated(Communicator& communicator, const Operation& operation) {
  Turn turn(communicator, communicator.issue());
  const Plan* plan = communicator.plan_of_repeated(operation);
  if (plan == nullptr) return false;
  communicator.health().check();
  communicator.batch().run(operation, *plan);
  return true;
}

}  // namespace tutti
