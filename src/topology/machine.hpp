// SPDX-License-Identifier: BSD-3-Clause
//
// src/topology: what the machine is like. So far: how much of it this process may use.
#pragma once
#include <bitset>
#include <cstddef>
#include <string>

namespace tutti {

/// Processors that processes may run on at once: their affinity masks, cut to the quota of their cgroup.
class Cores {
 public:
  static Cores of_this_process();
  /// Those of processes of one machine together. A launcher may have bound each to a core of its own.
  void add(const Cores& other);
  int count() const;

  std::string pack() const;
  static Cores unpack(const std::string& bytes);

 private:
  std::bitset<1024> mask_;  // as cpu_set_t
  int quota_ = 0;           // 0: none
};

/// Bytes of the last-level caches of the cores that this process may run on, together; 0 if unknown. Reads
/// the machine on first use: some milliseconds.
std::size_t last_level_cache_bytes();

/// The kernel that this process runs on, since it was started; or what NCCL_HOSTID says.
std::string machine_key();

/// Two processes with equal keys may share memory: same kernel, same network name space (in which the Unix
/// sockets are that hand memory over), same numbers of processes.
std::string host_key();

}  // namespace tutti
