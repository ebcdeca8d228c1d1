// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tutti {

/// Copies [address, address + bytes) of another process, or of this one, here: process_vm_readv(2). Throws
/// ncclRemoteError when the process is gone, ncclSystemError when the kernel does not permit it or the memory
/// is not there.
void copy_from_process(pid_t process, void* destination, std::uint64_t address, std::size_t bytes);

/// Whether that works with this process: tries to read `bytes` at `address` and compares them with
/// `expected`.
bool can_copy_from_process(pid_t process, std::uint64_t address, const void* expected, std::size_t bytes);

}  // namespace tutti
