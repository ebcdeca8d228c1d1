// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <exception>
#include <vector>

#include "executor/plan.hpp"

namespace tutti {

/// A peer's message belongs to another call than this rank's. Translated into words by the communicator.
class CallMismatch : public std::exception {
 public:
  CallMismatch(int peer_rank, const CallHeader& their_call, const CallHeader& own_call)
      : peer(peer_rank), theirs(their_call), ours(own_call) {}
  const char* what() const noexcept override { return "ranks made different calls"; }
  int peer;
  CallHeader theirs, ours;
};

/// A rank whose message or room an execution is waiting for.
struct Blocker {
  int rank = 0;
  bool for_message = false;  // else for room
};

/// A place that a result is stored to.
struct Target {
  std::byte* data = nullptr;
  Store store = Store::cached;
};

/// One run of a plan: resumable, so that one thread can drive many. Reused, it allocates nothing.
class Execution {
 public:
  /// Buffers must stay valid until done(). `scalar`: of premul_sum.
  void start(const Plan& plan, const void* input, void* output, const CallHeader& header,
             std::uint64_t scalar);

  /// To be called when the plan of the last run has gone.
  void forget() { plan_ = nullptr; }

  /// Does what can be done now; true if anything moved. Throws CallMismatch.
  bool progress() {
    if (done_) return false;
    return plan_->brief ? progress_brief() : progress_tracks();
  }

  /// All steps have run and nobody reads this rank's buffers any more.
  bool done() const { return done_; }

  /// Whom the first stalled track waits for.
  std::vector<Blocker> blockers() const;

  /// Whether a message that is yet to come in this round must come from a rank that `is_one(rank)`.
  template <class Predicate>
  bool awaits(Predicate is_one) const {
    if (done_) return false;
    for (std::size_t t = 0; t < track_count_; ++t) {
      const Cursor& cursor = cursors_[t];
      if (cursor.done()) continue;
      for (const PlanStep* step = cursor.step; step != cursor.end; ++step)
        for (const Inlet* inlet : step->inlets)
          if (!inlet->has_message() && is_one(inlet->source())) return true;
    }
    return false;
  }
  /// Whether any message of the operation comes from that rank.
  bool takes_from(int rank) const;

 private:
  struct Cursor {
    const PlanStep* begin = nullptr;  // of the track
    const PlanStep* end = nullptr;
    const PlanStep* step = nullptr;
    std::size_t round = 0, rounds = 0;
    std::size_t arrived = 0;            // inlets of the step that have their message
    std::vector<std::size_t> ahead;     // by step: elements done, where one message took several rounds
    std::vector<const void*> operands;  // of the step, in order
    std::vector<void*> landings;        // of its messages, if the step answers them; null: none
    bool done() const { return round >= rounds; }
    std::size_t& elements_ahead() { return ahead[static_cast<std::size_t>(step - begin)]; }
  };

  void prepare(const Plan& plan);
  bool progress_brief();
  bool progress_tracks();
  bool advance(Cursor& cursor);
  bool run_inline(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count);
  void reduce_inline(const Cursor& cursor, const PlanStep& step, std::size_t count, std::byte* out);
  bool run_slice(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count);
  bool take_messages(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count);
  void combine(Cursor& cursor, const PlanStep& step, std::size_t count);
  void go_ahead(Cursor& cursor, std::size_t elements);
  void store(Cursor& cursor, const PlanStep& step, std::size_t count, Target target);
  void copy_to_targets(const void* from, std::size_t bytes);
  void reduce(const PlanStep& step, const void* const* operands, std::size_t count, Target first,
              Target second = {});
  void reduce_in_pieces(Cursor& cursor, const PlanStep& step, std::size_t count);
  static bool has_landings(const Cursor& cursor, const PlanStep& step);
  bool send(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count);
  std::byte* address(const Range& range, std::size_t at) const;
  bool settled() const;
  void begin_span();
  void end_span(std::size_t elements);

  const Plan* plan_ = nullptr;
  std::size_t element_ = 1;            // bytes
  std::array<std::byte*, 4> bases_{};  // by Buffer
  std::vector<std::byte> scratch_;
  CallHeader header_;
  std::uint64_t scalar_ = 0;
  std::vector<Target> targets_;  // of the slice at hand
  StoreTuner::Choice for_others_;
  StoreTuner::Clock::time_point started_;  // the span, if it is timed
  std::vector<Cursor> cursors_;
  std::size_t track_count_ = 0;
  bool is_ahead_ = false;  // at any step
  bool done_ = true;
};

}  // namespace tutti
