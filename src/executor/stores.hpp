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
#include <optional>

namespace tutti {

/// To this core's cache, past all caches, or into lines that another core's cache holds, which stay cached.
enum class Store : std::uint8_t { cached, streaming, shared };

/// Decides between Store::shared and Store::streaming for memory that other ranks read, by the time that
/// whole operations of one kind and size take: a few of them try one and the other in turn, the many that
/// follow use the faster one. All ranks try at the same time, since the kind's operations are counted alike
/// on all.
class StoreTuner {
 public:
  using Clock = std::chrono::steady_clock;
  struct Choice {
    Store store = Store::shared;
    bool timed = false;  ///< report with took() how long the operation took
  };
  Choice choose() {
    std::uint32_t at = operations_++ % kPeriod;
    if (at == 0) shortest_.fill(Clock::duration::max());
    if (at < kTrials) return {at % 2 == 0 ? Store::shared : Store::streaming, true};
    return {best_, false};
  }
  void took(Store store, Clock::duration duration) {
    Clock::duration& shortest = shortest_[store == Store::streaming];
    shortest = std::min(shortest, duration);
    best_ = shortest_[1] < shortest_[0] ? Store::streaming : Store::shared;
  }

 private:
  static constexpr std::uint32_t kTrials = 4;
  static constexpr std::uint32_t kPeriod = 128;
  std::uint32_t operations_ = 0;
  std::array<Clock::duration, 2> shortest_{};  // shared, streaming
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
