// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

#include "algorithms/schedule.hpp"

namespace tutti {

/// Slices that every lane has room for, at the least: what verify assumes and what transports must provide.
/// It is two because a ring of ranks that each pass a slice on as they take one in would stand still with
/// one.
inline constexpr int kLeastLaneSlices = 2;

/// At most this many ranks can be verified.
inline constexpr int kMostVerifiedRanks = 192;

struct VerifyOptions {
  int lane_slices = kLeastLaneSlices;
  /// Receivers read messages from the sender's memory at the time they use them, as transports do for
  /// schedules with stable_sends.
  bool read_in_place = false;
  /// Ranks 0, push_stride, 2 * push_stride ... store results in the landings that they are given; 0: none.
  int push_stride = 0;
};

/// Runs the schedules of all ranks symbolically and proves, for this shape (shape.rank is ignored):
///  - termination, with lanes that hold no more than `lane_slices` messages;
///  - every output element holds every contribution exactly once, finished once, and nothing else;
///  - no two accesses to the same element of which one writes are unordered (by the steps of a track and by
///    messages), so that no interleaving of tracks and no timing can change a result;
///  - ranges stay inside their buffers and the input is not written;
///  - what was stored in a landing is received just there;
///  - with shape.in_place, all of that while input and output share memory as NCCL's in-place form says.
/// Returns "" or a sentence about the first fault. `schedules[r]` is rank r's.
std::string verify(const std::vector<Schedule>& schedules, const Shape& shape,
                   const VerifyOptions& options = {});

/// Builds the schedules of all ranks and verifies them: read in place too if they claim stable sends, and
/// with all, half and none of the ranks storing in landings if there are any.
std::string verify(Algorithm algorithm, const Shape& shape);

}  // namespace tutti
