// SPDX-License-Identifier: BSD-3-Clause
//
// A store by one thread and a later load by the same thread, against the same two the other way round by
// another thread: at least one of them must see the other's store. That takes a full fence on both sides, or,
// with membarrier(2), none on the side that is passed often and a system call on the one that is passed
// rarely.
#pragma once
#include <atomic>

namespace tutti {

/// Whether the kernel has the barrier for the threads of this process.
extern const bool kHasProcessBarrier;

/// Between the store and the load of the side that is passed often.
inline void light_fence() {
  if (kHasProcessBarrier)
    std::atomic_signal_fence(std::memory_order_seq_cst);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

/// Between the store and the load of the other side, in another thread of this process.
void heavy_fence();

/// The same pair for threads of all processes of the host that use the library: whether the kernel has the
/// barrier (the same answer in all of them), and the barrier; without it, a full fence.
extern const bool kHasHostBarrier;
void heavy_fence_across_processes();

}  // namespace tutti
