// SPDX-License-Identifier: BSD-3-Clause
//
// How ranks find each other, and what happens when they do not.
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "tutti/tutti.h"

using support::Environment;
using support::LocalRanks;

TEST_CASE("a non-blocking communicator is polled until it is made") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comms[2];
  for (int r = 0; r < 2; ++r) {
    CHECK(ncclCommInitRankConfig(&comms[r], 2, id, r, &config) == ncclInProgress);
    if (r == 0) {
      float x = 0;
      CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, comms[0], nullptr) == ncclInvalidArgument);
    }
  }
  for (ncclComm_t comm : comms) {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    CHECK(state == ncclSuccess);
  }
  for (ncclComm_t comm : comms) CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST_CASE("a join that nobody else comes to is ended by an abort") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  CHECK(ncclCommAbort(comm) == ncclSuccess);  // returns at once, though rank 1 never comes
  CHECK(ncclCommAbort(comm) == ncclInvalidArgument);
}

TEST_CASE("the library's own threads leave the signals to the application's") {
  LocalRanks ranks(2);
  cudaStream_t stream = nullptr;
  REQUIRE(tuttiStreamCreate(&stream) == ncclSuccess);
  REQUIRE(tuttiStreamAddCallback(
              stream, [](void*) {}, nullptr) == ncclSuccess);
  REQUIRE(tuttiStreamSynchronize(stream) == ncclSuccess);  // its thread runs, under its name
  int seen = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(thread.path() / "status");
    std::string line, name;
    std::uint64_t blocked = 0;
    while (std::getline(status, line)) {
      if (line.starts_with("Name:\t")) name = line.substr(6);
      if (line.starts_with("SigBlk:\t")) blocked = std::stoull(line.substr(8), nullptr, 16);
    }
    auto blocks = [blocked](int signal) { return ((blocked >> (signal - 1)) & 1) != 0; };
    if (!name.starts_with("tutti-")) continue;
    INFO(name);
    ++seen;
    for (int signal : {SIGINT, SIGTERM, SIGALRM, SIGCHLD, SIGUSR1}) CHECK(blocks(signal));
    for (int signal : {SIGSEGV, SIGBUS, SIGPROF}) CHECK_FALSE(blocks(signal));
  }
  CHECK(seen >= 2);  // the service's and the stream's
  CHECK(tuttiStreamDestroy(stream) == ncclSuccess);
}

TEST_CASE("split orders ranks by key, gives NULL without a colour, and nests") {
  LocalRanks ranks(6);
  ranks.run([](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    int color = rank == 5 ? NCCL_SPLIT_NOCOLOR : rank % 2;
    bool ok =
        ncclCommSplit(comm, color, -rank, &part, nullptr) == ncclSuccess && (part == nullptr) == (rank == 5);
    if (part != nullptr) {
      int size = 0, own = 0;
      ncclCommCount(part, &size);
      ncclCommUserRank(part, &own);
      ok = ok && size == (color == 0 ? 3 : 2) && own == size - 1 - rank / 2;
      ncclComm_t alone = nullptr;
      ok = ok && ncclCommSplit(part, rank, 0, &alone, nullptr) == ncclSuccess;
      int sum = 1;
      ok = ok && ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, part, nullptr) == ncclSuccess && sum == size;
      ok = ok && ncclCommDestroy(alone) == ncclSuccess && ncclCommDestroy(part) == ncclSuccess;
    }
    if (!ok) throw std::runtime_error("split");
  });
  ranks.run([](int rank, ncclComm_t comm) {
    ncclComm_t part = nullptr;
    if (ncclCommSplit(comm, rank == 2 ? -7 : 0, 0, &part, nullptr) != ncclInvalidArgument)
      throw std::runtime_error("a negative colour must fail on all ranks");
  });
}

TEST_CASE("several ids share a rendezvous") {
  const int n = 5;
  std::vector<ncclUniqueId> ids(2);
  for (ncclUniqueId& id : ids) REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<std::thread> threads;
  std::atomic<int> right = 0;
  for (int r = 0; r < n; ++r)
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      int sum = r;
      if (ncclCommInitRankScalable(&comm, n, r, 2, ids.data(), nullptr) != ncclSuccess) return;
      if (ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, comm, nullptr) == ncclSuccess && sum == 10) ++right;
      ncclCommDestroy(comm);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(right == n);
}

TEST_CASE("ranks that wait for a late one are not taken for dead") {
  Environment silence("TUTTI_PEER_TIMEOUT", "0.2");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::atomic<int> right = 0;
  auto join = [&](int rank) {
    ncclComm_t comm = nullptr;
    if (ncclCommInitRank(&comm, 4, id, rank) != ncclSuccess) return;
    int sum = rank;
    if (ncclAllReduce(&sum, &sum, 1, ncclInt, ncclSum, comm, nullptr) == ncclSuccess && sum == 6) ++right;
    ncclCommDestroy(comm);
  };
  std::vector<std::thread> threads;
  for (int rank : {0, 1, 2}) threads.emplace_back(join, rank);
  // Rank 0 has both of its children by then, and rank 1 lacks its own.
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  threads.emplace_back(join, 3);
  for (std::thread& thread : threads) thread.join();
  CHECK(right == 4);
}

TEST_CASE("a missing rank is named when the time to join is up") {
  Environment limit("TUTTI_INIT_TIMEOUT", "0.3");
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::atomic<int> told = 0;
  std::vector<std::thread> threads;
  for (int r : {0, 2})
    threads.emplace_back([&, r] {
      ncclComm_t comm = nullptr;
      if (ncclCommInitRank(&comm, 4, id, r) == ncclSystemError && comm == nullptr &&
          says(ncclGetLastError(nullptr), {"not joined: 1, 3"}))
        ++told;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(told == 2);
}

TEST_CASE("two ranks with one number, and different numbers of ranks, fail fast on all") {
  for (bool sizes_differ : {false, true}) {
    ncclUniqueId id{};
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::atomic<int> told = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i)
      threads.emplace_back([&, i] {
        ncclComm_t comm = nullptr;
        int ranks = sizes_differ ? 3 + i : 3;
        int rank = sizes_differ ? i : 1;
        if (ncclCommInitRank(&comm, ranks, id, rank) == ncclInvalidArgument) ++told;
      });
    for (std::thread& thread : threads) thread.join();
    CHECK(told == 2);
  }
}

TEST_CASE("64 ranks join as threads") {
  LocalRanks ranks(64);
  std::vector<int> data(64, 1);
  ncclGroupStart();
  for (std::size_t r = 0; r < 64; ++r)
    ncclAllReduce(&data[r], &data[r], 1, ncclInt, ncclSum, ranks.comms[r], nullptr);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(data[63] == 64);
}
