// SPDX-License-Identifier: BSD-3-Clause
//
// The room of measuring: what a rank did when.
#pragma once
#include <array>
#include <chrono>
#include <vector>

#include "model/tensor.hpp"

namespace trainer {

enum class Activity : std::uint8_t { Forward, Backward, Update, Evaluate, Wait };
inline constexpr std::size_t kActivityCount = 5;
const char* name_of(Activity activity);

/// A stretch of time of one rank, in seconds since the timeline's origin. Waits lie within other spans, in
/// part.
struct Span {
  Activity activity;
  const char* of;            ///< the group of ranks that is waited for; else ""
  Index micro_batch, chunk;  ///< -1 where there is none
  double begin, end;
};

/// One rank's spans of time, and their sums by activity. For one thread.
class Timeline {
 public:
  using Clock = std::chrono::steady_clock;

  Timeline() { start(); }
  /// Sets the origin; ranks that do so at the same moment have comparable times.
  void start() { origin_ = Clock::now(); }
  /// From now on spans are kept, or only added up.
  void keep(bool kept) { keeps_ = kept; }
  void forget() { spans_.clear(); }

  double now() const { return since_origin(Clock::now()); }
  double since_origin(Clock::time_point time) const {
    return std::chrono::duration<double>(time - origin_).count();
  }
  void add(const Span& span);
  /// Runs f and adds the time it took.
  template <class F>
  auto during(Activity activity, const char* of, Index micro_batch, Index chunk, F f) {
    struct Scope {
      Timeline& timeline;
      Span span;
      ~Scope() {
        span.end = timeline.now();
        timeline.add(span);
      }
    } scope{*this, {activity, of, micro_batch, chunk, now(), 0}};
    return f();
  }
  template <class F>
  auto during(Activity activity, F f) {
    return during(activity, "", -1, -1, std::move(f));
  }

  /// Seconds of an activity so far. Forward and backward include the waits that lie in them.
  double seconds(Activity activity) const { return seconds_[static_cast<std::size_t>(activity)]; }
  const std::vector<Span>& spans() const { return spans_; }

 private:
  Clock::time_point origin_;
  bool keeps_ = false;
  std::array<double, kActivityCount> seconds_{};
  std::vector<Span> spans_;
};

}  // namespace trainer
