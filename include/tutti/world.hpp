// SPDX-License-Identifier: BSD-3-Clause
//
// Joining the job that this process was started in: by mpirun, srun, torchrun, `tutti run`, or alone as a
// world of one process.
#ifndef TUTTI_WORLD_HPP_
#define TUTTI_WORLD_HPP_

#include <string>

#include "communicator.hpp"

namespace tutti {

/// This process's place in its job (tuttiWorldGet in C).
class World {
 public:
  /// Asks the engine that started the process: see tuttiWorldGet. Throws ncclInvalidUsage that names the
  /// variable when one is missing or wrong. Communicates with no other process of the job.
  static World from_environment() {
    World world;
    check(tuttiWorldGet(&world.place_));
    return world;
  }

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  int local_rank() const { return place_.localRank; }
  int local_size() const { return place_.localSize; }
  /// Who started the process, as in tuttiWorld_t.
  std::string launcher() const { return place_.launcher; }

  /// The id of a communicator over the whole world, or over `threads` ranks of every process. Every process
  /// calls it. One communicator can be made with it; further ones come from ncclCommSplit.
  ncclUniqueId unique_id() const {
    ncclUniqueId id{};
    check(tuttiWorldUniqueId(&id));
    return id;
  }

  /// A communicator of all processes, one rank each. Blocks until all have joined.
  Communicator communicator() const { return Communicator(unique_id(), size(), rank()); }

 private:
  tuttiWorld_t place_{};
};

}  // namespace tutti

#endif
