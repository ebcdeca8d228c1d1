// SPDX-License-Identifier: BSD-3-Clause
#include "transport/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <ctime>

namespace tutti {
namespace {

timespec to_timespec(std::chrono::milliseconds duration) {
  return {.tv_sec = static_cast<time_t>(duration.count() / 1000),
          .tv_nsec = static_cast<long>(duration.count() % 1000 * 1'000'000)};
}

timespec from_now(std::chrono::milliseconds duration) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  timespec more = to_timespec(duration);
  now.tv_sec += more.tv_sec;
  now.tv_nsec += more.tv_nsec;
  if (now.tv_nsec >= 1'000'000'000) {
    now.tv_nsec -= 1'000'000'000;
    ++now.tv_sec;
  }
  return now;
}

}  // namespace

void Doorbell::wake() const {
  bell_->rings.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &bell_->rings, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Sleep::Sleep(std::span<const Doorbell> bells)
    : bells_(bells.first(std::min(bells.size(), kMost))), all_covered_(bells.size() <= kMost) {
  for (std::size_t i = 0; i < bells_.size(); ++i)
    rings_[i] = bells_[i].bell_->rings.load(std::memory_order_acquire);
  for (const Doorbell& bell : bells_) bell.bell_->sleeping.store(1, std::memory_order_relaxed);
  bool pays =
      std::any_of(bells_.begin(), bells_.end(), [](const Doorbell& bell) { return bell.sleeper_pays_; });
  if (pays)
    heavy_fence_across_processes();
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

Sleep::~Sleep() {
  for (const Doorbell& bell : bells_) bell.bell_->sleeping.store(0, std::memory_order_relaxed);
}

void Sleep::wait(std::chrono::milliseconds limit) {
  if (bells_.size() == 1) {
    timespec relative = to_timespec(limit);
    syscall(SYS_futex, &bells_[0].bell_->rings, FUTEX_WAIT, rings_[0], &relative, nullptr, 0);
    return;
  }
#ifdef SYS_futex_waitv
  std::array<futex_waitv, kMost> waiters{};
  for (std::size_t i = 0; i < bells_.size(); ++i) {
    waiters[i].val = rings_[i];
    waiters[i].uaddr = reinterpret_cast<std::uintptr_t>(&bells_[i].bell_->rings);
    waiters[i].flags = FUTEX_32;
  }
  timespec absolute = from_now(all_covered_ ? limit : std::min(limit, std::chrono::milliseconds(1)));
  if (syscall(SYS_futex_waitv, waiters.data(), bells_.size(), 0, &absolute, CLOCK_MONOTONIC) >= 0 ||
      errno != ENOSYS)
    return;
#endif
  // Before Linux 5.16 a thread can sleep on one word only.
  timespec nap{.tv_sec = 0, .tv_nsec = 100'000};
  nanosleep(&nap, nullptr);
}

}  // namespace tutti
