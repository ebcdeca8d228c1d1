// SPDX-License-Identifier: BSD-3-Clause
//
// What it costs to make a communicator of many ranks: time, memory and descriptors, as `ranks` threads of
// each process. bench/joining/table runs it for 2 to 512 ranks.
#include <dirent.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tutti/communicator.hpp"
#include "tutti/world.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// KiB of this process's memory; what several share counts in parts.
double memory() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;)
    if (double value = 0; word == "Pss:" && rollup >> value) return value;
  return 0;
}

double descriptors() {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // ".", ".." and the folder itself
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

struct Figures {
  double join, first, next, memory_joined, memory_used, descriptors;
};

// One rank of the job. Memory is the process's.
class Rank {
 public:
  void join(const ncclUniqueId& id, int ranks, int rank) {
    auto start = Clock::now();
    tutti::check(ncclCommInitRank(&comm_, ranks, id, rank));
    figures_.join = milliseconds_since(start);
  }
  void use() {
    figures_.first = all_reduce();
    figures_.next = all_reduce();
  }
  // All ranks' figures.
  std::vector<Figures> gather(int ranks) {
    std::vector<Figures> all(static_cast<std::size_t>(ranks));
    constexpr std::size_t kNumbers = sizeof(Figures) / sizeof(double);
    tutti::check(ncclAllGather(&figures_, all.data(), kNumbers, ncclFloat64, comm_, nullptr));
    return all;
  }
  void leave() const { tutti::check(ncclCommDestroy(comm_)); }
  Figures& figures() { return figures_; }

 private:
  double all_reduce() {
    auto start = Clock::now();
    double one = 1;
    tutti::check(ncclAllReduce(&one, &one, 1, ncclFloat64, ncclSum, comm_, nullptr));
    return milliseconds_since(start);
  }
  ncclComm_t comm_ = nullptr;
  Figures figures_{};
};

template <class Body>
void on_threads(std::vector<Rank>& ranks, Body body) {
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < ranks.size(); ++t)
    threads.emplace_back([&ranks, &body, t] {
      try {
        body(ranks[t], static_cast<int>(t));
      } catch (const std::exception& error) {
        fmt::print(stderr, "joining: {}\n", error.what());
        std::exit(1);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

void run(int threads) {
  tutti::World world = tutti::World::from_environment();
  int ranks = world.size() * threads;
  ncclUniqueId id = world.unique_id();
  std::vector<Rank> own(static_cast<std::size_t>(threads));
  double before = memory();
  on_threads(own, [&](Rank& rank, int t) { rank.join(id, ranks, world.rank() * threads + t); });
  double joined = memory();
  on_threads(own, [](Rank& rank, int) { rank.use(); });
  double used = memory(), files = descriptors();
  std::vector<Figures> all;
  on_threads(own, [&](Rank& rank, int t) {
    rank.figures().memory_joined = (joined - before) / threads;
    rank.figures().memory_used = (used - before) / threads;
    rank.figures().descriptors = files;
    auto figures = rank.gather(ranks);
    if (t == 0) all = figures;
  });
  auto start = Clock::now();
  on_threads(own, [](Rank& rank, int) { rank.leave(); });
  if (world.rank() != 0) return;
  // The rank that came last waited for nobody.
  Figures result{1e9, 0, 0, 0, 0, 0};
  for (const Figures& f : all) {
    result.join = std::min(result.join, f.join);
    result.first = std::max(result.first, f.first);
    result.next = std::max(result.next, f.next);
    result.memory_joined += f.memory_joined / ranks;
    result.memory_used += f.memory_used / ranks;
    result.descriptors = std::max(result.descriptors, f.descriptors);
  }
  fmt::print("{:>6} {:>10} {:>10.1f} {:>12.2f} {:>12.2f} {:>10.1f} {:>12.0f} {:>12.0f} {:>12.0f}\n", ranks,
             world.size(), result.join, result.first, result.next, milliseconds_since(start),
             result.memory_joined, result.memory_used, result.descriptors);
}

}  // namespace

int main(int argc, char** argv) {
  std::string argument = argc > 1 ? argv[1] : "1";
  int threads = std::atoi(argument.c_str());
  if (argc > 2 || threads < 1) {
    fmt::print(stderr, "usage: joining [RANKS]: ranks of this process, as threads (1)\n");
    return 2;
  }
  // Two descriptors a rank and those of the connections between them: more than many shells allow by default.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  try {
    run(threads);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "joining: {}\n", error.what());
    return 1;
  }
}
