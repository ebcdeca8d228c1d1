// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "algorithms/select.hpp"
#include "algorithms/verify.hpp"
#include "base/error.hpp"
#include "topology/machine.hpp"
#include "transport/host_segment.hpp"

namespace {

using namespace tutti;

struct PlanOptions {
  std::string collective, algorithm;
  int ranks = 4, hosts = 1, root = 0, rank = -1;
  std::size_t count = 1024;
  double gigabits = 10;
  bool threads = false;
};

void check(const PlanOptions& options) {
  if (options.root >= options.ranks)
    fail(ncclInvalidArgument, "root {} of {} ranks", options.root, options.ranks);
  if (options.rank >= options.ranks)
    fail(ncclInvalidArgument, "--rank {} of {} ranks", options.rank, options.ranks);
  if (options.hosts > options.ranks)
    fail(ncclInvalidArgument, "--hosts {} for {} ranks: every host has one at least", options.hosts,
         options.ranks);
  if (options.hosts > 1 && options.threads)
    fail(ncclInvalidArgument, "--threads are on one host, and --hosts is {}", options.hosts);
}

// Hosts are filled one after the other, as mpirun and srun do it.
HostMap fill_hosts(int ranks, int hosts) {
  HostMap map;
  for (int host = 0; host < hosts; ++host) {
    int n = ranks / hosts + (host < ranks % hosts ? 1 : 0);
    map.insert(map.end(), static_cast<std::size_t>(n), host);
  }
  return map;
}

// What a communicator of such ranks would know.
struct Job {
  explicit Job(const PlanOptions& options) : cores(Cores::of_this_process().count()) {
    int on_a_host = (options.ranks + options.hosts - 1) / options.hosts;
    costs.ranks_per_core = static_cast<double>(on_a_host) / cores;
    costs.ranks_per_host = on_a_host;
    costs.shared_pointers = options.threads;
    slice = segment_layout(options.ranks, kLaneCount, options.threads, 0).slice;
    if (options.hosts == 1) return;
    slice = slice_between_hosts(on_a_host, kLaneCount);
    NetworkParameters parameters;
    parameters.host_bytes_per_second = options.gigabits * 1e9 / 8;
    parameters.ranks_per_core = costs.ranks_per_core;
    network.emplace(fill_hosts(options.ranks, options.hosts), parameters, slice);
  }
  const HostMap* hosts() const { return network ? &network->hosts() : nullptr; }
  double predicted(Algorithm algorithm, Collective collective, int ranks, std::size_t bytes) {
    double seconds = predicted_seconds(algorithm, collective, ranks, bytes, costs);
    return seconds + (network ? network->seconds(algorithm, collective, bytes) : 0);
  }
  int cores;
  CostParameters costs;
  std::optional<NetworkModel> network;
  std::size_t slice;
};

std::string place_of(const PlanOptions& options, int cores) {
  if (options.hosts == 1)
    return fmt::format("{} on {} cores", options.threads ? "(threads)" : "(processes)", cores);
  return fmt::format("on {} hosts of {} cores, joined by {} Gbit/s each", options.hosts, cores,
                     options.gigabits);
}

// The proof is for a small operation of the same shape: elements do not differ.
int prove(Algorithm algorithm, const Shape& shape) {
  if (shape.ranks > kMostVerifiedRanks) {
    fmt::print("\nnot verified: more than {} ranks\n", kMostVerifiedRanks);
    return 0;
  }
  Shape small = shape;
  small.count = 2 * static_cast<std::size_t>(shape.ranks) + 1;
  auto ranks = static_cast<std::size_t>(shape.ranks);
  std::size_t blocks_per_message = std::min(shape.slice / std::max<std::size_t>(shape.count, 1), ranks);
  small.slice = std::max<std::size_t>(blocks_per_message * small.count, 1);
  std::string fault = verify(algorithm, small);
  fmt::print("\nverify: {}\n", fault.empty() ? "proved" : fault);
  return fault.empty() ? 0 : 1;
}

int plan(const PlanOptions& options) {
  auto collective = collective_named(options.collective);
  if (!collective || static_cast<int>(*collective) >= kCollectiveCount)
    fail(
        ncclInvalidArgument,
        "there is no collective \"{}\"; there are all_reduce, broadcast, reduce, all_gather, reduce_scatter, "
        "alltoall, gather, scatter",
        options.collective);
  check(options);
  Job job(options);
  std::size_t bytes = options.count * sizeof(float);
  Algorithm chosen = select(*collective, options.ranks, bytes, AlgorithmFilter::parse(options.algorithm),
                            job.costs, job.network ? &*job.network : nullptr);
  fmt::print("{} of {} floats per rank, {} ranks {}\n\n  {:<20} {:>14}\n", name_of(*collective),
             options.count, options.ranks, place_of(options, job.cores), "algorithm", "predicted (us)");
  for (int a = 0; a < kAlgorithmCount; ++a) {
    auto algorithm = static_cast<Algorithm>(a);
    if (!supports(algorithm, *collective, options.ranks, job.hosts())) continue;
    fmt::print("{} {:<20} {:>14.2f}\n", algorithm == chosen ? "*" : " ", name_of(algorithm),
               job.predicted(algorithm, *collective, options.ranks, bytes) * 1e6);
  }
  Shape shape{.collective = *collective,
              .ranks = options.ranks,
              .root = options.root,
              .count = options.count,
              .slice = job.slice / sizeof(float),
              .hosts = job.hosts()};
  for (int r = 0; r < options.ranks; ++r) {
    if (options.rank >= 0 && r != options.rank) continue;
    shape.rank = r;
    fmt::print("\nrank {}: {}", r, describe(build(chosen, shape)));
  }
  return prove(chosen, shape);
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlanOptions>();
  auto* command = app.add_subcommand("plan", "Show which algorithm would be chosen, and its schedule");
  command->footer(
      "Examples: tutti plan all_reduce --ranks 4 --count 1000000 --rank 0\n"
      "          tutti plan scatter --ranks 16 --hosts 2 --gbits 25 --count 64");
  command->add_option("collective", options->collective, "all_reduce, broadcast, reduce, all_gather, ...")
      ->required();
  command->add_option("-n,--ranks", options->ranks, "Number of ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--hosts", options->hosts, "Hosts that the ranks fill one after the other")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--gbits", options->gigabits, "Rate of a host's network each way, in Gbit/s")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  command->add_option("-c,--count", options->count, "Floats per rank")->capture_default_str();
  command->add_option("-r,--root", options->root, "Root of rooted collectives")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--rank", options->rank, "Show this rank only")->check(CLI::NonNegativeNumber);
  command->add_flag("--threads", options->threads, "The ranks are threads of one process");
  command->add_option("-a,--algorithm", options->algorithm, "As NCCL_ALGO: only these may be chosen");
  command->callback([options, &exit_code] { exit_code = plan(*options); });
}
