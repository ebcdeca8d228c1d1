// SPDX-License-Identifier: BSD-3-Clause
#include "topology/machine.hpp"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace tutti {

int usable_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int cores = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");  // "max 100000" or "quota period", in microseconds
  double quota = 0;
  double period = 0;
  if (quota_file >> quota >> period && quota > 0 && period > 0)
    cores = std::min(cores, static_cast<int>(std::ceil(quota / period)));
  return std::max(cores, 1);
}

std::size_t last_level_cache_bytes() {
  for (int level : {_SC_LEVEL4_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    if (long bytes = sysconf(level); bytes > 0) return static_cast<std::size_t>(bytes);
  return 0;
}

std::string host_key() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  struct stat name_space {};
  if (stat("/proc/self/ns/net", &name_space) == 0) boot.append("/").append(std::to_string(name_space.st_ino));
  return boot;
}

}  // namespace tutti
