// SPDX-License-Identifier: BSD-3-Clause
//
// One process per rank, started by `tutti run -n 4 process_per_rank` (or torchrun). tutti::World reads from
// the environment who this process is; the rest is NCCL's API.
#include <nccl.h>

#include <cstdio>
#include <tutti/world.hpp>
#include <vector>

int main() try {
  tutti::World world = tutti::World::from_environment();
  ncclComm_t comm = nullptr;
  tutti::check(ncclCommInitRank(&comm, world.size(), world.unique_id(), world.rank()));

  // Everyone learns everyone's number.
  int mine = 100 + world.rank();
  std::vector<int> all(static_cast<std::size_t>(world.size()));
  tutti::check(ncclAllGather(&mine, all.data(), 1, ncclInt, comm, nullptr));

  std::printf("rank %d of %d sees", world.rank(), world.size());
  for (int number : all) std::printf(" %d", number);
  std::printf("\n");
  tutti::check(ncclCommDestroy(comm));
  return all.back() == 99 + world.size() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
