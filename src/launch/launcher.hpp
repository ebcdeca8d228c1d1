// SPDX-License-Identifier: BSD-3-Clause
//
// src/launch: which job this process was started in and where its ranks meet, as the engine that started it
// says: `tutti run`, torchrun, a PMIx server (mpirun, srun), Slurm. Ends with a unique id; joining is the
// bootstrap's.
#pragma once
#include <memory>

#include "bootstrap/unique_id.hpp"
#include "tutti/tutti.h"

namespace tutti {

/// The engine that started this process.
class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual tuttiWorld_t world() = 0;
  /// The same on all processes of the job, each of which calls it. May block until all have.
  virtual UniqueId unique_id() = 0;

  /// The one whose variables are in the environment now; the innermost of several (torchrun within srun).
  /// Throws ncclInvalidUsage that names the variable when one is wrong or missing, or the engine is none that
  /// is known.
  static std::unique_ptr<Launcher> of_this_process();
};

/// Makers of launchers: null when the environment holds no sign of them.
std::unique_ptr<Launcher> find_variables_launcher();  ///< RANK, WORLD_SIZE: `tutti run`, torchrun, or by hand
std::unique_ptr<Launcher> find_pmix_launcher();
std::unique_ptr<Launcher> find_slurm_launcher();

/// An id at the first port from `port` on that is free on rank 0's host, whose secret comes from `job` (which
/// others may guess) and TUTTI_JOB_SECRET.
UniqueId agreed_unique_id(const std::string& host, int port, const std::string& job);

}  // namespace tutti
