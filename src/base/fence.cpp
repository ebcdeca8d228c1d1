// SPDX-License-Identifier: BSD-3-Clause
#include "base/fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti {
namespace {

bool has_barrier(int command, int registration) {
  long commands = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
  return commands >= 0 && (commands & command) != 0 && syscall(SYS_membarrier, registration, 0, 0) == 0;
}

void barrier(bool exists, int command) {
  if (exists)
    syscall(SYS_membarrier, command, 0, 0);
  else
    std::atomic_thread_fence(std::memory_order_seq_cst);
}

}  // namespace

const bool kHasProcessBarrier =
    has_barrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
const bool kHasHostBarrier =
    has_barrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);

void heavy_fence() { barrier(kHasProcessBarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED); }

void heavy_fence_across_processes() { barrier(kHasHostBarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED); }

}  // namespace tutti
