// SPDX-License-Identifier: BSD-3-Clause
//
// How results are stored. What is fastest depends on what caches the cores of two ranks share and on how the
// processor writes lines that another core holds; on virtual machines it changes while a program runs. It
// changes no result. So it is found out by trying, again and again.
#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

namespace tutti {

/// To this core's cache, past all caches, or into lines that another core's cache holds, which stay cached.
enum class Store : std::uint8_t { cached, streaming, shared };

/// Decides between Store::shared and Store::streaming for memory that other ranks read, by the time that
/// spans of an operation take (the whole of it, if it is short): a few of them try one and then the other,
/// the first of each untimed, since they find what the kind before has left in the caches; the many that
/// follow use the faster one. All ranks try at the same time, since the spans of a kind of operation are
/// counted alike on all.
class StoreTuner {
 public:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    Store store = Store::shared;
    bool timed = false;  ///< report with took() how long the span took
  };
  Choice choose() {
    std::uint32_t at = spans_++ % kPeriod;
    if (at == 0) least_.fill(std::numeric_limits<double>::max());
    if (at >= 2 * kTrials) return {best_, false};
    return {at < kTrials ? Store::shared : Store::streaming, at % kTrials >= kTrials / 2};
  }
  /// For what is too short to be a span.
  Store best() const { return best_; }
  void took(Store store, Clock::duration duration, std::size_t elements) {
    double& least = least_[store == Store::streaming];
    least = std::min(least, static_cast<double>(duration.count()) / static_cast<double>(elements));
    best_ = least_[1] < least_[0] ? Store::streaming : Store::shared;
  }

 private:
  static constexpr std::uint32_t kTrials = 4;  // of each kind, one after the other
  static constexpr std::uint32_t kPeriod = 256;
  std::uint32_t spans_ = 0;
  std::array<double, 2> least_{};  // time per element: shared, streaming
  Store best_ = Store::shared;
};

/// TUTTI_STREAMING, and the machine's caches.
struct StorePolicy {
  /// Stores to outputs bypass the caches when the buffers of all ranks together are longer than this, and the
  /// output is not where an operand was just read.
  std::size_t cached_bytes = SIZE_MAX;
  /// How memory is stored that other ranks read; none: as a StoreTuner finds.
  std::optional<Store> for_others;
};

}  // namespace tutti
