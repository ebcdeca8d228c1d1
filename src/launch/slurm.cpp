// SPDX-License-Identifier: BSD-3-Clause
//
// Jobs that Slurm's srun started without PMIx: its variables tell the ranks and the hosts, and where rank 0
// listens is agreed on by the numbers of job and step.
#include <algorithm>
#include <cstdio>

#include "base/error.hpp"
#include "launch/launcher.hpp"
#include "launch/variables.hpp"

namespace tutti {
namespace {

// Above the ports that Linux gives to outgoing connections (32768 to 60999).
constexpr int kFirstPort = 61000;
constexpr int kPorts = 4500;

// The first of "node[001-003,7],other": node001.
std::string first_host(const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ',';) {
    if (list[at] != '[') {
      host += list[at++];
      continue;
    }
    std::size_t close = list.find(']', at);
    if (close == std::string::npos) refuse_variable("SLURM_STEP_NODELIST", "has a [ without ]");
    host += list.substr(at + 1, list.find_first_of(",-]", at) - at - 1);
    at = close + 1;
  }
  return host;
}

// Entry `node` of "4(x2),3": 4, 4, 3.
int tasks_of_node(const std::string& text, int node) {
  int left = node;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(text.find(',', at), text.size());
    int tasks = 0, nodes = 1;
    if (std::sscanf(text.substr(at, end - at).c_str(), "%d(x%d)", &tasks, &nodes) < 1) break;
    if (left < nodes) return tasks;
    left -= nodes;
    at = end + 1;
  }
  refuse_variable("SLURM_STEP_TASKS_PER_NODE", fmt::format("says nothing of node {}", node));
}

class SlurmLauncher : public Launcher {
 public:
  SlurmLauncher() {
    world_.rank = required_number("SLURM_PROCID");
    world_.size = required_number("SLURM_STEP_NUM_TASKS");
    check_rank("SLURM_PROCID", world_.rank, "SLURM_STEP_NUM_TASKS", world_.size);
    world_.localRank = required_number("SLURM_LOCALID");
    world_.localSize = tasks_of_node(variable("SLURM_STEP_TASKS_PER_NODE"), required_number("SLURM_NODEID"));
    check_rank("SLURM_LOCALID", world_.localRank, "SLURM_STEP_TASKS_PER_NODE", world_.localSize);
    world_.launcher = "slurm";
  }
  tuttiWorld_t world() override { return world_; }
  UniqueId unique_id() override {
    if (world_.size == 1) return make_unique_id();
    std::string host = first_host(variable("SLURM_STEP_NODELIST"));
    if (host.empty()) refuse_variable("SLURM_STEP_NODELIST", "is needed beside SLURM_PROCID");
    int job = required_number("SLURM_JOB_ID"), step = required_number("SLURM_STEP_ID");
    return agreed_unique_id(host, kFirstPort + (job % kPorts + step % kPorts * 8) % kPorts,
                            fmt::format("slurm {}.{}", job, step));
  }

 private:
  tuttiWorld_t world_{};
};

}  // namespace

std::unique_ptr<Launcher> find_slurm_launcher() {
  // A batch script has SLURM_PROCID, too, but is no step of srun.
  if (variable("SLURM_PROCID").empty() || variable("SLURM_STEP_NUM_TASKS").empty()) return nullptr;
  return std::make_unique<SlurmLauncher>();
}

}  // namespace tutti
