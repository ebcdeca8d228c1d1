// SPDX-License-Identifier: BSD-3-Clause
//
// One source for all *_perf programs; the build gives the collective's name.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "runner.hpp"
#include "tutti/world.hpp"

namespace {

using bench::Options;

// Where a rank runs.
struct Place {
  int process = 0, device = 0;
  std::array<char, 56> host{};
};

// "#  Rank  0 Group  0 Pid   1234 on       host device  0 [host memory]" of all ranks. Collective.
std::vector<std::string> rank_lines(std::vector<bench::Rank>& own, int first_device, int ranks) {
  std::vector<Place> places(own.size());
  std::vector<std::vector<Place>> tables(own.size(), std::vector<Place>(static_cast<std::size_t>(ranks)));
  tutti::GroupScope group;
  for (std::size_t i = 0; i < own.size(); ++i) {
    places[i].process = getpid();
    places[i].device = first_device + static_cast<int>(i);
    gethostname(places[i].host.data(), places[i].host.size() - 1);
    ncclAllGather(&places[i], tables[i].data(), sizeof(Place), ncclInt8, own[i].comm(), nullptr);
  }
  group.end();
  std::vector<std::string> lines;
  for (const Place& place : tables[0])
    lines.push_back(fmt::format("#  Rank {:>2} Group  0 Pid {:>6} on {:>10} device {:>2} [host memory]",
                                lines.size(), place.process, place.host.data(), place.device));
  return lines;
}

class Program {
 public:
  Program(const tutti::World& world, const Options& options, const std::string& name)
      : world_(world),
        options_(options),
        name_(name),
        kind_(bench::kind_named(name)),
        per_process_(options.threads * options.ranks_per_thread),
        report_(options, name + "_perf", kind_, ranks(), world.rank() == 0) {}

  int run() {
    id_ = world_.unique_id();
    std::vector<std::vector<ncclComm_t>> comms(static_cast<std::size_t>(options_.threads));
    if (!options_.parallel_init) {
      tutti::GroupScope group;
      for (int t = 0; t < options_.threads; ++t) comms[static_cast<std::size_t>(t)] = join(t);
      group.end();
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < options_.threads; ++t)
      threads.emplace_back([&, t] { run_thread(t, comms[static_cast<std::size_t>(t)]); });
    for (std::thread& thread : threads) thread.join();
    if (failed_) return 1;
    bool written = report_.conclude();
    return report_.wrong() == 0 && written ? 0 : 1;
  }

 private:
  int ranks() const { return world_.size() * per_process_; }

  // The vector must not move before the group has ended: the handles are written then.
  std::vector<ncclComm_t> join(int thread) {
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(options_.ranks_per_thread));
    for (int g = 0; g < options_.ranks_per_thread; ++g) {
      int rank = world_.rank() * per_process_ + thread * options_.ranks_per_thread + g;
      ncclCommInitRank(&comms[static_cast<std::size_t>(g)], ranks(), id_, rank);
    }
    return comms;
  }

  void run_thread(int thread, std::vector<ncclComm_t>& comms) {
    try {
      if (options_.parallel_init) {
        tutti::GroupScope group;
        comms = join(thread);
        group.end();
      }
      std::vector<bench::Rank> own;
      own.reserve(comms.size());
      for (ncclComm_t comm : comms) own.emplace_back(tutti::Communicator(comm), options_, kind_);
      auto lines = rank_lines(own, thread * options_.ranks_per_thread, ranks());
      if (thread == 0) report_.header(lines);
      bench::run_table(own, options_, kind_, thread == 0 ? &report_ : nullptr);
    } catch (const std::exception& error) {
      std::lock_guard lock(mutex_);
      fmt::print(stderr, "{}_perf: process {} thread {}: {}\n", name_, world_.rank(), thread, error.what());
      failed_ = true;
    }
  }

  const tutti::World& world_;
  const Options& options_;
  std::string name_;
  bench::Kind kind_;
  int per_process_;
  ncclUniqueId id_{};
  bench::Report report_;
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
};

}  // namespace

int main(int argc, char** argv) {
  const std::string name = BENCH_COLLECTIVE;
  try {
    tutti::World world = tutti::World::from_environment();
    Options options = bench::parse_options(argc, argv, name + "_perf", world.rank() == 0);
    if (options.timeout > 0) setenv("TUTTI_TIMEOUT", fmt::format("{}", options.timeout).c_str(), 1);
    return Program(world, options, name).run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}_perf: {}\n", name, error.what());
    return 1;
  }
}
