// SPDX-License-Identifier: BSD-3-Clause
//
// Collectives, groups and streams with ranks as threads of this process.
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <stdexcept>

#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "tutti/tutti.h"

using support::Environment;
using support::LocalRanks;

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
