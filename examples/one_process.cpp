// SPDX-License-Identifier: BSD-3-Clause
//
// One process with many ranks: ncclCommInitAll makes them, and a group starts the call of each from one
// thread.
#include <nccl.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

static void check(ncclResult_t result) {
  if (result == ncclSuccess) return;
  std::fprintf(stderr, "%s\n", ncclGetLastError(nullptr));
  std::exit(1);
}

int main() {
  const int ranks = 4;
  std::vector<ncclComm_t> comms(ranks);
  check(ncclCommInitAll(comms.data(), ranks, nullptr));

  // Rank r contributes r + 1 everywhere; the sum over the ranks is 10.
  std::vector<std::vector<float>> data;
  for (int r = 0; r < ranks; ++r) data.emplace_back(1000, static_cast<float>(r + 1));

  // Without the group the first call would wait for the others, which this thread has not made yet.
  check(ncclGroupStart());
  for (std::size_t r = 0; r < comms.size(); ++r)
    check(
        ncclAllReduce(data[r].data(), data[r].data(), data[r].size(), ncclFloat, ncclSum, comms[r], nullptr));
  check(ncclGroupEnd());

  for (std::size_t r = 0; r < comms.size(); ++r) std::printf("rank %zu: %g\n", r, data[r].back());
  for (ncclComm_t comm : comms) check(ncclCommDestroy(comm));
  return data[0].back() == 10.0F && data[3].front() == 10.0F ? 0 : 1;
}
