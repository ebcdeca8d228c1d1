// SPDX-License-Identifier: BSD-3-Clause
#pragma once
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

/// One run of a plan: resumable, so that one thread can drive many. Reused, it allocates nothing.
class Execution {
 public:
  /// Buffers must stay valid until done(). `scalar`: of premul_sum.
  void start(const Plan& plan, const void* input, void* output, const CallHeader& header,
             std::uint64_t scalar);

  /// Does what can be done now; true if anything moved. Throws CallMismatch.
  bool progress();

  /// All steps have run and nobody reads this rank's buffers any more.
  bool done() const { return done_; }

  /// Whom the first stalled track waits for.
  std::vector<Blocker> blockers() const;

 private:
  struct Cursor {
    const PlanTrack* track = nullptr;
    std::size_t step = 0;
    std::size_t round = 0;
    std::size_t arrived = 0;            // inlets of the step that have their message
    std::vector<const void*> operands;  // of the step, in order
    bool done() const { return round >= track->rounds; }
  };

  bool advance(Cursor& cursor);
  bool run_slice(Cursor& cursor, const PlanStep& step, std::size_t at, std::size_t count);
  bool take_messages(Cursor& cursor, const PlanStep& step, std::size_t bytes);
  void combine(const Cursor& cursor, const PlanStep& step, std::size_t count, void* first, void* second);
  void send(const Cursor& cursor, const PlanStep& step, std::size_t count, const void* local, std::byte* out);
  std::byte* address(const Range& range, std::size_t at) const;
  bool settled() const;

  const Plan* plan_ = nullptr;
  const std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::vector<std::byte> scratch_;
  CallHeader header_;
  std::uint64_t scalar_ = 0;
  std::vector<Cursor> cursors_;
  std::size_t track_count_ = 0;
  bool done_ = true;
};

}  // namespace tutti
