// SPDX-License-Identifier: BSD-3-Clause
#include "base/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti {
namespace {

bool has_process_barrier() {
  long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  if (commands < 0 || (commands & MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return false;
  return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

}  // namespace

const bool kHasProcessBarrier = has_process_barrier();

void heavy_fence() {
  if (kHasProcessBarrier)
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

void heavy_fence_across_processes() {
  heavy_fence();
  syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
}

}  // namespace tutti
