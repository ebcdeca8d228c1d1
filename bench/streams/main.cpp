// SPDX-License-Identifier: BSD-3-Clause
//
// What groups, several communicators and host streams cost beside a plain call, and how much of an all-reduce
// a stream hides behind computing. Ranks are processes: tutti run -n 2 build/bench/streams/streams
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/tutti.h"
#include "tutti/world.hpp"

namespace {

constexpr int kMany = 100;
constexpr std::size_t kLarge = std::size_t{4} << 20;  // floats: 16 MiB

// A rank's view of the job: its communicators, a stream, buffers.
struct Rank {
  ncclComm_t first, second;
  cudaStream_t stream;
  std::vector<float> small = std::vector<float>(2 * kMany, 1.0F);
  std::vector<float> large = std::vector<float>(kLarge, 1.0F);
  std::vector<float> own = std::vector<float>(1 << 16, 1.0F);  // computed on

  void all_reduce(ncclComm_t comm, int i, cudaStream_t on) {
    float* data = small.data() + 2 * i;
    tutti::check(ncclAllReduce(data, data, 2, ncclFloat32, ncclMax, comm, on));
  }
  void all_reduce_large(cudaStream_t on) {
    tutti::check(ncclAllReduce(large.data(), large.data(), kLarge, ncclFloat32, ncclMax, first, on));
  }
  void compute() {
    for (int round = 0; round < 400; ++round)
      for (float& x : own) x = x * 0.999F + 0.001F;
  }
  void synchronize() { tutti::check(tuttiStreamSynchronize(stream)); }
};

// Microseconds: the median of several rounds, each of `times` repetitions, on the slowest rank.
double time(Rank& rank, int times, const std::function<void()>& body) {
  constexpr int kRounds = 9;
  std::vector<double> samples;
  for (int round = -1; round < kRounds; ++round) {  // one to warm up
    double ready = 0;
    tutti::check(ncclAllReduce(&ready, &ready, 1, ncclFloat64, ncclMax, rank.first, nullptr));
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i) body();
    double spent =
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / times;
    tutti::check(ncclAllReduce(&spent, &spent, 1, ncclFloat64, ncclMax, rank.first, nullptr));
    if (round >= 0) samples.push_back(spent);
  }
  std::nth_element(samples.begin(), samples.begin() + kRounds / 2, samples.end());
  return samples[kRounds / 2];
}

void measure(Rank& rank, bool shows) {
  auto show = [&](const char* what, double microseconds) {
    if (shows) fmt::print("{:<66} {:>12.2f}\n", what, microseconds);
    return microseconds;
  };
  auto each = [&](cudaStream_t on) {
    for (int i = 0; i < kMany; ++i) rank.all_reduce(rank.first, i, on);
  };
  if (shows) fmt::print("{:<66} {:>12}\n", "all-reduces of 8 bytes", "us each");
  show("one call after the other", time(rank, 20, [&] { each(nullptr); }) / kMany);
  show("on two communicators in turn", time(rank, 20, [&] {
                                         for (int i = 0; i < kMany; ++i)
                                           rank.all_reduce(i % 2 == 0 ? rank.first : rank.second, i, nullptr);
                                       }) / kMany);
  show("a group of 100", time(rank, 20, [&] {
                           tutti::check(ncclGroupStart());
                           each(nullptr);
                           tutti::check(ncclGroupEnd());
                         }) / kMany);
  show("100 on a host stream, then synchronize", time(rank, 20, [&] {
                                                   each(rank.stream);
                                                   rank.synchronize();
                                                 }) / kMany);
  show("each on a host stream and synchronized", time(rank, 200, [&] {
         rank.all_reduce(rank.first, 0, rank.stream);
         rank.synchronize();
       }));
  if (shows) fmt::print("{:<66} {:>12}\n", "an all-reduce of 16 MiB and computing", "us");
  double computing = show("computing alone", time(rank, 1, [&] { rank.compute(); }));
  double reducing = show("all-reduce alone", time(rank, 3, [&] { rank.all_reduce_large(nullptr); }));
  double both = show("all-reduce on a stream, computing meanwhile", time(rank, 1, [&] {
                       rank.all_reduce_large(rank.stream);
                       rank.compute();
                       rank.synchronize();
                     }));
  if (shows)
    fmt::print("{:<66} {:>10.0f} %\n", "share of the all-reduce that was hidden",
               100 * (computing + reducing - both) / reducing);
}

}  // namespace

int main() {
  try {
    tutti::World world = tutti::World::from_environment();
    tutti::Communicator first = world.communicator();
    Rank rank{};
    rank.first = first.get();
    tutti::check(ncclCommSplit(rank.first, 0, first.rank(), &rank.second, nullptr));
    tutti::check(tuttiStreamCreate(&rank.stream));
    if (first.rank() == 0) fmt::print("{} ranks\n", first.size());
    measure(rank, first.rank() == 0);
    tutti::check(tuttiStreamDestroy(rank.stream));
    tutti::check(ncclCommDestroy(rank.second));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
