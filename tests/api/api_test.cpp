// SPDX-License-Identifier: BSD-3-Clause
//
// The C API with ranks as threads of this process.
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"
#include "tutti/tutti.h"

using support::Environment;
using support::LocalRanks;

TEST_CASE("version, error strings and NULL arguments") {
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
  CHECK(ncclGetVersion(nullptr) == ncclInvalidArgument);
  CHECK(says(ncclGetLastError(nullptr), {"ncclGetVersion", "version is NULL"}));
  CHECK(std::string(ncclGetErrorString(ncclSuccess)) == "no error");
  CHECK(std::string(ncclGetErrorString(static_cast<ncclResult_t>(12))) == "unknown result code");
  CHECK(ncclCommDestroy(nullptr) == ncclInvalidArgument);
}

TEST_CASE("one rank: every collective copies or scales") {
  LocalRanks ranks(1);
  ncclComm_t comm = ranks.comms[0];
  float in[3] = {1, 2, 3};
  float out[3] = {};
  CHECK(ncclAllReduce(in, out, 3, ncclFloat, ncclAvg, comm, nullptr) == ncclSuccess);
  CHECK(out[2] == 3);
  float factor = 4;
  ncclRedOp_t op{};
  CHECK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, comm) == ncclSuccess);
  CHECK(ncclAllReduce(in, out, 3, ncclFloat, op, comm, nullptr) == ncclSuccess);
  CHECK(out[1] == 8);
  CHECK(ncclReduceScatter(in, in, 3, ncclFloat, op, comm, nullptr) == ncclSuccess);
  CHECK(in[0] == 4);
  CHECK(ncclAlltoAll(in, in, 3, ncclFloat, comm, nullptr) == ncclSuccess);
  CHECK(ncclRedOpDestroy(op, comm) == ncclSuccess);
  CHECK(ncclRedOpDestroy(op, comm) == ncclInvalidArgument);
}

TEST_CASE("wrong arguments are refused in words and the communicator stays usable") {
  LocalRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    float data[4] = {1, 1, 1, 1};
    auto fails = [&](ncclResult_t result, std::initializer_list<const char*> parts) {
      return result == ncclInvalidArgument && says(ncclGetLastError(nullptr), parts);
    };
    bool ok =
        fails(ncclAllReduce(data, data, 4, static_cast<ncclDataType_t>(13), ncclSum, comm, nullptr),
              {"13"}) &&
        fails(ncclAllReduce(data, data, 4, ncclFloat, static_cast<ncclRedOp_t>(55), comm, nullptr), {"55"}) &&
        fails(ncclBroadcast(data, data, 4, ncclFloat, 2, comm, nullptr), {"root is 2", "0 to 1"}) &&
        fails(ncclReduce(data, data, 4, ncclFloat, ncclSum, -1, comm, nullptr), {"root is -1"}) &&
        fails(ncclSend(data, 4, ncclFloat, 7, comm, nullptr), {"peer is 7"}) &&
        fails(ncclAllReduce(nullptr, data, 4, ncclFloat, ncclSum, comm, nullptr), {"sendbuff"}) &&
        fails(ncclAllReduce(data, nullptr, 4, ncclFloat, ncclSum, comm, nullptr), {"recvbuff"}) &&
        fails(ncclAllGather(data, data, SIZE_MAX / 4, ncclFloat, comm, nullptr), {"count"}) &&
        fails(ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, reinterpret_cast<cudaStream_t>(&data)),
              {"stream"}) &&
        ncclSend(data, 4, ncclFloat, rank, comm, nullptr) == ncclInvalidUsage;
    ok = ok && ncclAllReduce(nullptr, nullptr, 0, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess;
    ok = ok && ncclAllReduce(data, data, 4, ncclFloat, ncclSum, comm, nullptr) == ncclSuccess && data[3] == 2;
    if (!ok) throw std::runtime_error("an argument was not refused as it should be");
  });
  int info = 0;
  CHECK(ncclCommCount(ranks.comms[1], &info) == ncclSuccess);
  CHECK(info == 2);
  CHECK(ncclCommUserRank(ranks.comms[1], &info) == ncclSuccess);
  CHECK(info == 1);
  CHECK(ncclCommCuDevice(ranks.comms[1], &info) == ncclSuccess);
  CHECK(info == 1);
}

TEST_CASE("configs are checked by magic and size") {
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t zero{};
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &zero) == ncclInvalidArgument);
  CHECK(says(ncclGetLastError(nullptr), {"NCCL_CONFIG_INITIALIZER"}));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.size = offsetof(ncclConfig_t, netName);  // of an older header
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclSuccess);
  CHECK(ncclCommDestroy(comm) == ncclSuccess);
  config.blocking = 7;
  CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
  for (auto [ranks, rank] : {std::pair{0, 0}, {2, 2}, {2, -1}})
    CHECK(ncclCommInitRank(&comm, ranks, id, rank) == ncclInvalidArgument);
  ncclUniqueId rubbish{};
  CHECK(ncclCommInitRank(&comm, 2, rubbish, 0) == ncclInvalidArgument);
}

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

TEST_CASE("handles are invalid after destroy, and destroy after finalize is clean") {
  LocalRanks ranks(2);
  ranks.run([](int, ncclComm_t comm) { ncclCommFinalize(comm); });
  float x = 1;
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[0], nullptr) == ncclInvalidUsage);
  CHECK(ncclCommDestroy(ranks.comms[0]) == ncclSuccess);
  CHECK(ncclCommDestroy(ranks.comms[0]) == ncclInvalidArgument);
  CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[0], nullptr) == ncclInvalidArgument);
  ranks.comms[0] = nullptr;
}

TEST_CASE("groups nest, mix collectives with sends, and span communicators in one thread") {
  const int n = 3;
  LocalRanks one(n);
  LocalRanks two(n);
  std::vector<float> a(n, 1), b(n, 2), token(n), got(n, -1);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  for (std::size_t r = 0; r < n; ++r) {
    token[r] = static_cast<float>(r);
    ncclAllReduce(&a[r], &a[r], 1, ncclFloat, ncclSum, one.comms[r], nullptr);
    ncclRecv(&got[r], 1, ncclFloat, static_cast<int>((r + 2) % n), one.comms[r], nullptr);
    ncclAllReduce(&b[r], &b[r], 1, ncclFloat, ncclProd, two.comms[r], nullptr);
    ncclSend(&token[r], 1, ncclFloat, static_cast<int>((r + 1) % n), one.comms[r], nullptr);
    ncclAllReduce(&a[r], &a[r], 1, ncclFloat, ncclSum, one.comms[r], nullptr);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(a[0] == 1);  // nothing has started
  CHECK(ncclGroupEnd() == ncclSuccess);
  for (std::size_t r = 0; r < n; ++r) {
    CHECK(a[r] == 9);
    CHECK(b[r] == 8);
    CHECK(got[r] == static_cast<float>((r + 2) % n));
  }
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
}

TEST_CASE("a group with a wrong call starts nothing and leaves the thread in order") {
  LocalRanks ranks(2);
  std::vector<float> data(2, 1);
  ncclGroupStart();
  ncclAllReduce(&data[0], &data[0], 1, ncclFloat, ncclSum, ranks.comms[0], nullptr);
  CHECK(ncclAllReduce(&data[1], &data[1], 1, ncclFloat, static_cast<ncclRedOp_t>(99), ranks.comms[1],
                      nullptr) == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(data[0] == 1);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
  ncclGroupStart();
  for (std::size_t r = 0; r < 2; ++r)
    ncclAllReduce(&data[r], &data[r], 1, ncclFloat, ncclSum, ranks.comms[r], nullptr);
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(data[1] == 2);
}

TEST_CASE("sends to oneself need their receive in the group; a hundred to one peer arrive in order") {
  LocalRanks ranks(2);
  ranks.run([](int rank, ncclComm_t comm) {
    std::vector<int> out(100), in(100, -1);
    for (int i = 0; i < 100; ++i) out[static_cast<std::size_t>(i)] = 1000 * rank + i;
    int mine = rank + 5;
    int copy = 0;
    ncclGroupStart();
    ncclSend(&mine, 1, ncclInt, rank, comm, nullptr);
    for (int i = 0; i < 100; ++i)
      ncclSend(&out[static_cast<std::size_t>(i)], 1, ncclInt, 1 - rank, comm, nullptr);
    for (int i = 0; i < 100; ++i)
      ncclRecv(&in[static_cast<std::size_t>(i)], 1, ncclInt, 1 - rank, comm, nullptr);
    ncclRecv(&copy, 1, ncclInt, rank, comm, nullptr);
    bool ok = ncclGroupEnd() == ncclSuccess && copy == mine;
    for (int i = 0; i < 100; ++i) ok = ok && in[static_cast<std::size_t>(i)] == 1000 * (1 - rank) + i;
    ncclGroupStart();
    ncclSend(&mine, 1, ncclInt, rank, comm, nullptr);
    ok = ok && ncclGroupEnd() == ncclInvalidUsage;
    if (!ok) throw std::runtime_error("sends to self or in order");
  });
}

TEST_CASE("premultiplied sums use each rank's own factor, immediate or read at the call") {
  LocalRanks ranks(3);
  ranks.run([](int rank, ncclComm_t comm) {
    double factor = rank + 1;
    ncclRedOp_t now{}, later{};
    ncclRedOpCreatePreMulSum(&now, &factor, ncclDouble, ncclScalarHostImmediate, comm);
    ncclRedOpCreatePreMulSum(&later, &factor, ncclDouble, ncclScalarDevice, comm);
    factor = 10;
    double in = 1, a = 0, b = 0;
    bool ok = ncclAllReduce(&in, &a, 1, ncclDouble, now, comm, nullptr) == ncclSuccess && a == 6;
    ok = ok && ncclAllReduce(&in, &b, 1, ncclDouble, later, comm, nullptr) == ncclSuccess && b == 30;
    float x = 0;
    ok = ok && ncclAllReduce(&x, &x, 1, ncclFloat, now, comm, nullptr) == ncclInvalidArgument;
    if (!ok) throw std::runtime_error("premul");
  });
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
    threads.emplace_back([&, r] {
      float x = 1;
      results[r] = ncclAllReduce(&x, &x, 1, ncclFloat, ncclSum, ranks.comms[r], nullptr);
    });
  // Rank 2 never calls. Whether the others are blocked already or not, they must return.
  CHECK(ncclCommAbort(ranks.comms[0]) == ncclSuccess);
  ranks.comms[0] = nullptr;
  for (std::thread& thread : threads) thread.join();
  CHECK(results[1] == ncclRemoteError);
  CHECK(says(ncclGetLastError(ranks.comms[1]), {"rank 0 aborted"}));
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

TEST_CASE("host streams keep order, report errors once, and run callbacks") {
  LocalRanks ranks(2);
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams) REQUIRE(tuttiStreamCreate(&stream) == ncclSuccess);
  std::vector<std::vector<int>> data(2, std::vector<int>(1000, 1));
  for (int k = 0; k < 10; ++k)
    for (std::size_t r = 0; r < 2; ++r)
      CHECK(ncclAllReduce(data[r].data(), data[r].data(), 1000, ncclInt, ncclSum, ranks.comms[r],
                          streams[r]) == ncclSuccess);
  int seen = 0;
  struct Look {
    std::vector<int>* data;
    int* seen;
  } look{&data[0], &seen};
  auto callback = [](void* argument) {
    auto* l = static_cast<Look*>(argument);
    *l->seen = l->data->back();
  };
  CHECK(tuttiStreamAddCallback(streams[0], callback, &look) == ncclSuccess);
  for (cudaStream_t stream : streams) CHECK(tuttiStreamSynchronize(stream) == ncclSuccess);
  CHECK(seen == 1024);
  CHECK(data[1][999] == 1024);
  CHECK(tuttiStreamQuery(streams[0]) == ncclSuccess);

  // Different counts: the error comes out of the stream.
  ncclAllReduce(data[0].data(), data[0].data(), 1000, ncclInt, ncclSum, ranks.comms[0], streams[0]);
  ncclAllReduce(data[1].data(), data[1].data(), 999, ncclInt, ncclSum, ranks.comms[1], streams[1]);
  CHECK(tuttiStreamSynchronize(streams[0]) == ncclInvalidUsage);
  CHECK(tuttiStreamSynchronize(streams[0]) == ncclSuccess);
  for (cudaStream_t stream : streams) CHECK(tuttiStreamDestroy(stream) == ncclSuccess);
  CHECK(tuttiStreamSynchronize(streams[0]) == ncclInvalidArgument);
}

TEST_CASE("memory of ncclMemAlloc, registrations and windows are checked") {
  LocalRanks ranks(1);
  ncclComm_t comm = ranks.comms[0];
  void* memory = nullptr;
  REQUIRE(ncclMemAlloc(&memory, 10000) == ncclSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % 4096 == 0);
  std::memset(memory, 1, 10000);
  void* handle = nullptr;
  CHECK(ncclCommRegister(comm, memory, 10000, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(comm, handle) == ncclSuccess);
  CHECK(ncclCommDeregister(comm, handle) == ncclInvalidArgument);
  ncclWindow_t window = nullptr;
  CHECK(ncclCommWindowRegister(comm, static_cast<char*>(memory) + 1, 10, &window, 0) == ncclInvalidArgument);
  CHECK(ncclCommWindowRegister(comm, memory, 10000, &window, NCCL_WIN_COLL_SYMMETRIC) == ncclSuccess);
  CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclSuccess);
  CHECK(ncclMemFree(memory) == ncclInvalidArgument);
  CHECK(ncclMemFree(nullptr) == ncclSuccess);
}

TEST_CASE("what is not there yet says so") {
  LocalRanks ranks(1);
  ncclComm_t comm = nullptr;
  CHECK(ncclCommShrink(ranks.comms[0], nullptr, 0, &comm, nullptr, 0) == ncclInvalidUsage);
  CHECK(says(ncclGetLastError(nullptr), {"ncclCommShrink", "not implemented yet"}));
  CHECK(ncclCommRevoke(ranks.comms[0], 0) == ncclInvalidUsage);
  CHECK(ncclGroupSimulateEnd(nullptr) == ncclInvalidUsage);
}

TEST_CASE("two communicators in two threads, in opposite order on the two ranks") {
  LocalRanks one(2);
  LocalRanks two(2);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (std::size_t r = 0; r < 2; ++r)
    for (std::size_t c = 0; c < 2; ++c)
      threads.emplace_back([&, r, c] {
        ncclComm_t comm = (c == r ? one : two).comms[r];
        for (int k = 0; k < 2000; ++k) {
          int x = k;
          if (ncclAllReduce(&x, &x, 1, ncclInt, ncclSum, comm, nullptr) != ncclSuccess || x != 2 * k) ++wrong;
        }
      });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
}

TEST_CASE("results have the same bits on every rank and in every run, with every algorithm") {
  unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  for (const char* algorithm : {"ring", "tree", "direct", "flat", "halving_doubling", "recursive_doubling"}) {
    Environment force("NCCL_ALGO", algorithm);
    const int n = 5;
    const std::size_t count = 100'003;
    LocalRanks ranks(n);
    std::vector<std::vector<float>> inputs(n, std::vector<float>(count)),
        outputs(n, std::vector<float>(count));
    std::mt19937 random(seed);
    for (auto& input : inputs)
      for (float& x : input)
        x = std::ldexp(std::uniform_real_distribution<float>(-1, 1)(random), static_cast<int>(random() % 30));
    std::vector<float> first;
    for (int run = 0; run < 3; ++run) {
      ranks.run([&](int rank, ncclComm_t comm) {
        auto r = static_cast<std::size_t>(rank);
        ncclAllReduce(inputs[r].data(), outputs[r].data(), count, ncclFloat, ncclSum, comm, nullptr);
      });
      if (run == 0) first = outputs[0];
      for (const auto& output : outputs)
        CHECK(std::memcmp(output.data(), first.data(), count * sizeof(float)) == 0);
    }
    double sum = 0;
    for (const auto& input : inputs) sum += input[77];
    CHECK(std::abs(first[77] - sum) <= 1e-4 * (1 + std::abs(sum)));
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
