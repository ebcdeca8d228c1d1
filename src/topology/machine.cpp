// SPDX-License-Identifier: BSD-3-Clause
#include "topology/machine.hpp"

#include <hwloc.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>

#include "base/error.hpp"
#include "base/settings.hpp"

namespace tutti {

namespace {

// Not from sysconf(3): what it reads from the processor of a virtual machine is the host's (256 MiB seen
// where the guest has 16).
std::size_t read_last_level_cache_bytes() {
  hwloc_topology_t machine = nullptr;
  if (hwloc_topology_init(&machine) != 0) return 0;
  hwloc_topology_set_all_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_cache_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_ALL);
  std::size_t bytes = 0;
  if (hwloc_topology_load(machine) == 0) {
    hwloc_bitmap_t cores = hwloc_bitmap_alloc();
    if (hwloc_get_cpubind(machine, cores, HWLOC_CPUBIND_PROCESS) != 0)
      hwloc_bitmap_copy(cores, hwloc_topology_get_allowed_cpuset(machine));
    for (auto type : {HWLOC_OBJ_L2CACHE, HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L4CACHE}) {
      std::size_t level = 0;
      for (hwloc_obj_t cache = nullptr;
           (cache = hwloc_get_next_obj_covering_cpuset_by_type(machine, cores, type, cache)) != nullptr;)
        level += cache->attr->cache.size;
      if (level != 0) bytes = level;
    }
    hwloc_bitmap_free(cores);
  }
  hwloc_topology_destroy(machine);
  return bytes;
}

}  // namespace

Cores Cores::of_this_process() {
  Cores cores;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (std::size_t i = 0; i < cores.mask_.size(); ++i) cores.mask_[i] = CPU_ISSET(i, &allowed);
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");  // "max 100000" or "quota period", in microseconds
  double quota = 0;
  double period = 0;
  if (quota_file >> quota >> period && quota > 0 && period > 0)
    cores.quota_ = std::max(1, static_cast<int>(std::ceil(quota / period)));
  return cores;
}

void Cores::add(const Cores& other) {
  mask_ |= other.mask_;
  quota_ = quota_ == 0 || other.quota_ == 0 ? 0 : std::max(quota_, other.quota_);
}

int Cores::count() const {
  int cores = std::max(1, static_cast<int>(mask_.count()));
  return quota_ == 0 ? cores : std::min(cores, quota_);
}

std::string Cores::pack() const {
  std::string mask = mask_.to_string();
  return fmt::format("{} {}", quota_, mask.substr(std::min(mask.find('1'), mask.size() - 1)));
}

Cores Cores::unpack(const std::string& bytes) {
  std::istringstream text(bytes);
  Cores cores;
  if (!(text >> cores.quota_ >> cores.mask_)) fail(ncclSystemError, "a peer sent cores that are none");
  return cores;
}

std::size_t last_level_cache_bytes() {
  static const std::size_t kBytes = read_last_level_cache_bytes();
  return kBytes;
}

std::string machine_key() {
  std::string key = setting_text("NCCL_HOSTID");
  if (key.empty()) std::ifstream("/proc/sys/kernel/random/boot_id") >> key;
  return key;
}

std::string host_key() {
  std::string key = machine_key();
  for (const char* file : {"/proc/self/ns/net", "/proc/self/ns/pid"}) {
    struct stat name_space {};
    if (stat(file, &name_space) == 0) key.append("/").append(std::to_string(name_space.st_ino));
  }
  return key;
}

}  // namespace tutti
