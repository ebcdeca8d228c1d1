// SPDX-License-Identifier: BSD-3-Clause
//
// Send and receive: a token goes round a ring, and every rank adds its number. Run it with `tutti run -n 3
// ring`.
#include <nccl.h>

#include <cstdio>
#include <tutti/world.hpp>

int main() try {
  tutti::World world = tutti::World::from_environment();
  tutti::Communicator comm = world.communicator();
  int next = (world.rank() + 1) % world.size();
  int previous = (world.rank() - 1 + world.size()) % world.size();

  // All send to the right and receive from the left at once: only in a group is that safe in any order.
  int gift = world.rank();
  int received = -1;
  tutti::check(ncclGroupStart());
  tutti::check(ncclSend(&gift, 1, ncclInt, next, comm.get(), nullptr));
  tutti::check(ncclRecv(&received, 1, ncclInt, previous, comm.get(), nullptr));
  tutti::check(ncclGroupEnd());
  std::printf("rank %d got %d\n", world.rank(), received);
  if (received != previous || world.size() == 1) return received == previous ? 0 : 1;

  // One after the other: the token starts at rank 0 and comes back with the sum.
  int token = 0;
  if (world.rank() == 0) {
    tutti::check(ncclSend(&token, 1, ncclInt, next, comm.get(), nullptr));
    tutti::check(ncclRecv(&token, 1, ncclInt, previous, comm.get(), nullptr));
    std::printf("the token came back with %d\n", token);
    return token == world.size() * (world.size() - 1) / 2 ? 0 : 1;
  }
  tutti::check(ncclRecv(&token, 1, ncclInt, previous, comm.get(), nullptr));
  token += world.rank();
  tutti::check(ncclSend(&token, 1, ncclInt, next, comm.get(), nullptr));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
