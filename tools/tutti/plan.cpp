// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <fmt/format.h>

#include <memory>

#include "algorithms/select.hpp"
#include "algorithms/verify.hpp"
#include "base/error.hpp"
#include "topology/machine.hpp"
#include "transport/host_segment.hpp"

namespace {

struct PlanOptions {
  std::string collective, algorithm;
  int ranks = 4, root = 0, rank = -1;
  std::size_t count = 1024;
  bool threads = false;
};

int plan(const PlanOptions& options) {
  using namespace tutti;
  auto collective = collective_named(options.collective);
  if (!collective || static_cast<int>(*collective) >= kCollectiveCount)
    fail(
        ncclInvalidArgument,
        "there is no collective \"{}\"; there are all_reduce, broadcast, reduce, all_gather, reduce_scatter, "
        "alltoall, gather, scatter",
        options.collective);
  if (options.root >= options.ranks)
    fail(ncclInvalidArgument, "root {} of {} ranks", options.root, options.ranks);
  if (options.rank >= options.ranks)
    fail(ncclInvalidArgument, "--rank {} of {} ranks", options.rank, options.ranks);
  CostParameters costs;
  const int cores = Cores::of_this_process().count();
  costs.ranks_per_core = static_cast<double>(options.ranks) / cores;
  costs.shared_pointers = options.threads;
  std::size_t bytes = options.count * sizeof(float);
  Algorithm chosen =
      select(*collective, options.ranks, bytes, AlgorithmFilter::parse(options.algorithm), costs);
  fmt::print("{} of {} floats per rank, {} ranks ({}) on {} cores\n\n  {:<20} {:>14}\n", name_of(*collective),
             options.count, options.ranks, options.threads ? "threads" : "processes", cores, "algorithm",
             "predicted (us)");
  for (int a = 0; a < kAlgorithmCount; ++a) {
    auto algorithm = static_cast<Algorithm>(a);
    if (!supports(algorithm, *collective, options.ranks)) continue;
    fmt::print("{} {:<20} {:>14.2f}\n", algorithm == chosen ? "*" : " ", name_of(algorithm),
               predicted_seconds(algorithm, *collective, options.ranks, bytes, costs) * 1e6);
  }
  Shape shape{*collective,
              options.ranks,
              0,
              options.root,
              options.count,
              false,
              segment_layout(options.ranks, kLaneCount, options.threads, 0).slice / sizeof(float)};
  for (int r = 0; r < options.ranks; ++r) {
    if (options.rank >= 0 && r != options.rank) continue;
    shape.rank = r;
    fmt::print("\nrank {}: {}", r, describe(build(chosen, shape)));
  }
  // The proof is for a small operation of the same shape: elements do not differ.
  Shape small = shape;
  small.count = 2 * static_cast<std::size_t>(options.ranks) + 1;
  small.slice = 1;
  if (options.ranks > kMostVerifiedRanks) {
    fmt::print("\nnot verified: more than {} ranks\n", kMostVerifiedRanks);
    return 0;
  }
  std::string fault = verify(chosen, small);
  fmt::print("\nverify: {}\n", fault.empty() ? "proved" : fault);
  return fault.empty() ? 0 : 1;
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto options = std::make_shared<PlanOptions>();
  auto* command = app.add_subcommand("plan", "Show which algorithm would be chosen, and its schedule");
  command->footer("Example: tutti plan all_reduce --ranks 4 --count 1000000 --rank 0");
  command->add_option("collective", options->collective, "all_reduce, broadcast, reduce, all_gather, ...")
      ->required();
  command->add_option("-n,--ranks", options->ranks, "Number of ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("-c,--count", options->count, "Floats per rank")->capture_default_str();
  command->add_option("-r,--root", options->root, "Root of rooted collectives")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  command->add_option("--rank", options->rank, "Show this rank only")->check(CLI::NonNegativeNumber);
  command->add_flag("--threads", options->threads, "The ranks are threads of one process");
  command->add_option("-a,--algorithm", options->algorithm, "As NCCL_ALGO: only these may be chosen");
  command->callback([options, &exit_code] { exit_code = plan(*options); });
}
