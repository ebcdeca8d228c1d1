// SPDX-License-Identifier: BSD-3-Clause
#include "launch/launcher.hpp"

#include "base/error.hpp"
#include "base/settings.hpp"
#include "launch/variables.hpp"

namespace tutti {
namespace {

// Other jobs may hold some ports; each of these is tried by those who look for the rendezvous.
constexpr int kPortsToTry = 8;

// A process that nobody started as part of a job.
class Alone : public Launcher {
 public:
  tuttiWorld_t world() override {
    return {.rank = 0, .size = 1, .localRank = 0, .localSize = 1, .launcher = "none"};
  }
  UniqueId unique_id() override { return make_unique_id(); }
};

// Engines whose processes would otherwise each take themselves for a job of one.
void refuse_unknown_engine() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"})
    if (!variable(name).empty() && variable(name) != "1")
      refuse_variable(
          name,
          "says that an MPI launcher started this process, but without the PMIx by which Tutti would "
          "find the others: use Open MPI's mpirun, srun, torchrun or `tutti run`, or set RANK, "
          "WORLD_SIZE, MASTER_ADDR and MASTER_PORT (docs/running.md)");
}

}  // namespace

std::unique_ptr<Launcher> Launcher::of_this_process() {
  for (auto find : {find_variables_launcher, find_pmix_launcher, find_slurm_launcher})
    if (auto launcher = find()) return launcher;
  refuse_unknown_engine();
  return std::make_unique<Alone>();
}

UniqueId agreed_unique_id(const std::string& host, int port, const std::string& job) {
  int ports = kPortsToTry;
  if (auto fixed = variable_number("TUTTI_JOIN_PORT")) {
    port = *fixed;
    ports = 1;
  }
  bool numeric_ipv6 = host.find(':') != std::string::npos;
  std::string address = fmt::format(fmt::runtime(numeric_ipv6 ? "[{}]:{}" : "{}:{}"), host, port);
  return unique_id_at(address, job + '/' + setting_text("TUTTI_JOB_SECRET"), ports);
}

}  // namespace tutti
