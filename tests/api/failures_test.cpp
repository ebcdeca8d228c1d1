// SPDX-License-Identifier: BSD-3-Clause
//
// Ranks that disagree, leave, abort or stand still.
#include <sys/mman.h>

#include <functional>

#include "support/catch.hpp"
#include "support/ranks.hpp"

using support::Environment;
using support::LocalRanks;

TEST_CASE("ranks that call different things learn of both calls") {
  struct Pair {
    std::function<ncclResult_t(ncclComm_t, float*)> first, second;
    std::vector<const char*> words;
  };
  auto all_reduce = [](std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    return [=](ncclComm_t c, float* d) { return ncclAllReduce(d, d, count, type, op, c, nullptr); };
  };
  auto broadcast = [](int root) {
    return [=](ncclComm_t c, float* d) { return ncclBroadcast(d, d, 4, ncclFloat, root, c, nullptr); };
  };
  const std::vector<Pair> pairs = {
      {all_reduce(4, ncclFloat, ncclSum), all_reduce(5, ncclFloat, ncclSum), {"count 4", "count 5"}},
      {all_reduce(4, ncclFloat, ncclSum), all_reduce(4, ncclInt, ncclSum), {"float", "int32"}},
      {all_reduce(4, ncclFloat, ncclSum), all_reduce(4, ncclFloat, ncclMax), {"sum", "max"}},
      {all_reduce(0, ncclFloat, ncclSum), all_reduce(4, ncclFloat, ncclSum), {"count 0", "count 4"}},
      {all_reduce(4, ncclFloat, ncclSum), broadcast(1), {"ncclAllReduce", "ncclBroadcast"}},
      {[](ncclComm_t c, float* d) { return ncclSend(d, 4, ncclFloat, 1, c, nullptr); },
       [](ncclComm_t c, float* d) { return ncclRecv(d, 3, ncclFloat, 0, c, nullptr); },
       {"count 4", "count 3"}},
  };
  for (const Pair& pair : pairs) {
    LocalRanks ranks(2);
    ncclResult_t results[2];
    std::string sentences[2];
    ranks.run([&](int rank, ncclComm_t comm) {
      std::vector<float> data(8, 1);
      // A rank that has nothing to wait for (a sender, a count of zero) learns of it at its next call.
      results[rank] = (rank == 0 ? pair.first : pair.second)(comm, data.data());
      if (results[rank] == ncclSuccess)
        results[rank] = ncclAllReduce(data.data(), data.data(), 8, ncclFloat, ncclSum, comm, nullptr);
      sentences[rank] = ncclGetLastError(comm);
    });
    for (int r = 0; r < 2; ++r) {
      CHECK(results[r] == ncclInvalidUsage);
      for (const char* word : pair.words) CHECK(says(sentences[r], {word}));
    }
  }
}

TEST_CASE("an abort from another thread ends a blocked call, here and on the other ranks") {
  LocalRanks ranks(3);
  std::vector<ncclResult_t> results(2);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 2; ++r)
    threads.emplace_back([&results, r, comm = ranks.comms[r]] {
      float x = 1;
      results[r] = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comm, nullptr);
    });
  // Rank 2 never calls. Whether the others are blocked already or not, they must return.
  CHECK(ncclCommAbort(ranks.comms[0]) == ncclSuccess);
  for (std::thread& thread : threads) thread.join();
  ranks.comms[0] = nullptr;
  CHECK(results[0] != ncclSuccess);
  CHECK(results[1] == ncclRemoteError);
  CHECK(says(ncclGetLastError(ranks.comms[1]), {"rank 0 aborted"}));
}

TEST_CASE("no other thread uses the buffers of a call that has failed") {
  constexpr std::size_t kBytes = 64 << 20;
  for (int delay = 0; delay < 24; ++delay) {
    LocalRanks ranks(3);
    std::vector<std::thread> threads;
    for (ncclComm_t comm : ranks.comms)
      threads.emplace_back([comm] {
        // Memory that is gone at once, so that a late access is a fault.
        auto map = [] {
          return mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        };
        void* input = map();
        void* output = map();
        ncclAllReduce(input, output, kBytes / 4, ncclFloat, ncclSum, comm, nullptr);
        munmap(input, kBytes);
        munmap(output, kBytes);
      });
    std::this_thread::sleep_for(std::chrono::milliseconds(delay));
    CHECK(ncclCommAbort(ranks.comms[1]) == ncclSuccess);
    for (std::thread& thread : threads) thread.join();
    ranks.comms[1] = nullptr;
  }
}

TEST_CASE("waiting for a rank that has left is an error, not a hang") {
  LocalRanks ranks(2);
  CHECK(ncclCommDestroy(ranks.comms[1]) == ncclSuccess);
  ranks.comms[1] = nullptr;
  float x = 1;
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[0], nullptr) == ncclRemoteError);
  CHECK(says(ncclGetLastError(nullptr), {"rank 1 has left"}));
}

TEST_CASE("an operation that stands still too long fails with who waits for whom") {
  Environment limit("TUTTI_TIMEOUT", "0.2");
  LocalRanks ranks(2);
  float x = 1;
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[0], nullptr) == ncclSystemError);
  CHECK(says(ncclGetLastError(nullptr), {"TUTTI_TIMEOUT", "rank 0", "rank 1", "ncclAllReduce"}));
}
