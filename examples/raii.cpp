// SPDX-License-Identifier: BSD-3-Clause
//
// The C++ layer: communicators that clean up after themselves, spans, exceptions; threads as ranks, and a
// split.
#include <atomic>
#include <cstdio>
#include <numeric>
#include <thread>
#include <tutti/communicator.hpp>
#include <vector>

int main() {
  const int ranks = 4;
  std::vector<tutti::Communicator> world = tutti::Communicator::local(ranks);
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (const tutti::Communicator& comm : world)
    threads.emplace_back([&comm, &failures] {
      try {
        std::vector<double> data(100);
        std::iota(data.begin(), data.end(), comm.rank());
        comm.all_reduce(std::span(data), ncclAvg);
        if (data[0] != 1.5) ++failures;

        // Even and odd ranks go on among themselves.
        tutti::Communicator half = comm.split(comm.rank() % 2, comm.rank());
        std::vector<double> mine{static_cast<double>(comm.rank())};
        std::vector<double> both(2);
        half.all_gather(std::span<const double>(mine), std::span(both));
        if (both[1] - both[0] != 2) ++failures;
        std::printf("rank %d: average %g, its half is %g and %g\n", comm.rank(), data[0], both[0], both[1]);

        // A mistake is an exception with a sentence, and the communicator stays usable.
        try {
          comm.broadcast(std::span(data), 17);
          ++failures;
        } catch (const tutti::Exception& error) {
          if (comm.rank() == 0) std::printf("as expected: %s\n", error.what());
        }
      } catch (const std::exception& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ++failures;
      }
    });
  for (std::thread& thread : threads) thread.join();
  return failures == 0 ? 0 : 1;
}
