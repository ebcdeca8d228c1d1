// SPDX-License-Identifier: BSD-3-Clause
#include "memory/process_memory.hpp"

#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "base/error.hpp"

namespace tutti {
namespace {

ssize_t read_from(pid_t process, void* destination, std::uint64_t address, std::size_t bytes) {
  iovec here{destination, bytes};
  iovec there{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(process, &here, 1, &there, 1, 0);
}

}  // namespace

void copy_from_process(pid_t process, void* destination, std::uint64_t address, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(destination);
  while (bytes > 0) {
    ssize_t done = read_from(process, to, address, bytes);
    if (done < 0 && errno == ESRCH)
      fail(ncclRemoteError, "process {} is gone, and its memory with it", process);
    if (done <= 0)
      fail(ncclSystemError,
           "reading {} bytes from the memory of process {}: {} (TUTTI_SINGLE_COPY=never does without)", bytes,
           process, done == 0 ? "nothing there" : std::strerror(errno));
    to += done;
    address += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

bool can_copy_from_process(pid_t process, std::uint64_t address, const void* expected, std::size_t bytes) {
  std::vector<std::byte> found(bytes);
  return read_from(process, found.data(), address, bytes) == static_cast<ssize_t>(bytes) &&
         std::memcmp(found.data(), expected, bytes) == 0;
}

}  // namespace tutti
