// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>

#include "base/fence.hpp"
#include "transport/host_segment.hpp"

namespace tutti {

/// How a rank sleeps: on the futex word of its bell, or, when it waits for the network too, on a Unix socket.
enum SleepKind : std::uint32_t { kAwake = 0, kOnWord = 1, kOnSocket = 2 };

/// Sleeping until another rank has done something. The fast side (a rank that has just sent or released) only
/// looks at the sleeper's flag; that its store is seen before the flag is read must be ordered against the
/// sleeper's "set the flag, look once more". Where the kernel has membarrier(2) the sleeper pays for that
/// order alone.
class Doorbell {
 public:
  /// `crowded`: the host has more ranks than cores, so that sleeping is the rule and its price matters more.
  Doorbell(RankBoard::Bell& bell, bool crowded)
      : bell_(&bell), sleeper_pays_(kHasHostBarrier && !crowded), crowded_(crowded) {}

  /// After something was published to the rank: wakes it if it sleeps. Costs one load if it does not.
  void ring() const {
    if (sleeper_pays_) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (crowded_ && bell_->news.load(std::memory_order_relaxed) == 0)
        bell_->news.store(1, std::memory_order_relaxed);
    }
    if (bell_->sleeping.load(std::memory_order_relaxed) == kAwake) return;
    // Of several ringers, one makes the call.
    if (auto kind = bell_->sleeping.exchange(kAwake, std::memory_order_acquire); kind != kAwake) rouse(kind);
  }

  /// Whatever the flag says: for news that the rank must not miss.
  void wake() const;

 private:
  friend class Sleep;
  void rouse(std::uint32_t kind) const;
  RankBoard::Bell* bell_;
  bool sleeper_pays_;
  bool crowded_;
};

/// A thread that is about to sleep for one or more ranks: declare, look once more for work, then wait.
class Sleep {
 public:
  /// `files`: descriptors that are to end the sleep, too, when they become readable.
  explicit Sleep(std::span<const Doorbell> bells, std::span<const int> files = {});
  ~Sleep();
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;
  /// Until one of the bells has been rung since the declaration, or the time is up.
  void wait(std::chrono::milliseconds limit);

 private:
  static constexpr std::size_t kMost = 128;  // of futex_waitv(2)
  void wait_for_files(std::chrono::milliseconds limit);
  std::span<const Doorbell> bells_;
  std::span<const int> files_;
  bool all_covered_;
  std::array<std::uint32_t, kMost> rings_;  // as they were when the sleep was declared
};

}  // namespace tutti
