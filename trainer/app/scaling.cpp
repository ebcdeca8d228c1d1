// SPDX-License-Identifier: BSD-3-Clause
#include "app/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <thread>

#include "app/output_file.hpp"
#include "app/roles.hpp"
#include "app/stop.hpp"
#include "report/scaling.hpp"
#include "report/statistics.hpp"

namespace trainer {

namespace {

int& axis(GridShape& grid, const std::string& along) {
  if (along == "dp") return grid.data;
  if (along == "tp") return grid.tensor;
  if (along == "pp") return grid.pipeline.stages;
  throw Error(fmt::format("--along {} is not known: choose dp, tp or pp", along));
}

Options on_ranks(const ScalingOptions& scaling, Options options, int ranks) {
  axis(options.grid, scaling.along) = ranks;
  if (scaling.along == "tp") options.timed_block /= ranks;
  return options;
}

// What a rank measured with one number of ranks, all rounds together.
struct Measured {
  std::vector<double> seconds;             // of each step, on rank 0
  std::vector<double> computing, waiting;  // of each round, mean over ranks
  double imbalance = 0;                    // mean of the rounds
};

void take_ranks(const std::vector<Measurement>& ranks, int rounds, Measured& measured) {
  double computing = 0, waiting = 0;
  for (const Measurement& rank : ranks) {
    computing += rank.computing() / static_cast<double>(ranks.size());
    waiting += rank.waiting() / static_cast<double>(ranks.size());
  }
  measured.computing.push_back(computing);
  measured.waiting.push_back(waiting);
  measured.imbalance += imbalance(ranks) / rounds;
}

// The steps of one round on some ranks. The first ones, in which memory is taken and products are prepared,
// do not count.
void train_round(const Options& options, int rounds, const Corpus& corpus, tutti::Communicator communicator,
                 Measured& measured) {
  constexpr Index kWarmUp = 2;
  const bool tells = communicator.rank() == 0;
  Worker worker(options, corpus, std::move(communicator));
  WorkerRole role(options, worker, nullptr, nullptr);
  for (Index step = 0; step < kWarmUp; ++step) worker.step(step);
  for (Index step = kWarmUp; step < kWarmUp + options.steps; ++step) {
    role.step(step);
    if (tells) measured.seconds.push_back(role.last_seconds());
  }
  const std::vector<Measurement> ranks = role.measurements();
  if (tells) take_ranks(ranks, rounds, measured);
}

void tell(const ScalingOptions& scaling, const Options& options, const Scaling& result, OutputFile* report,
          OutputFile* metrics) {
  fmt::print("{}", scaling_table(result));
  if (metrics != nullptr) metrics->finish(scaling_json(result));
  if (report == nullptr) return;
  report->finish(scaling_page(result,
                              fmt::format("{}, {} samples a step, ranks along --{}", describe(options.shape),
                                          options.batch, scaling.along),
                              options.command));
  fmt::print("report in {}\n", report->path().string());
}

}  // namespace

int ScalingOptions::most() const { return *std::max_element(ranks.begin(), ranks.end()); }

void check(const ScalingOptions& scaling, const Options& options, int ranks) {
  Options one = options;
  if (scaling.ranks.empty() || scaling.ranks.front() != 1 ||
      !std::is_sorted(scaling.ranks.begin(), scaling.ranks.end()) ||
      std::adjacent_find(scaling.ranks.begin(), scaling.ranks.end()) != scaling.ranks.end())
    throw Error(
        "--ranks must be growing numbers that begin with 1, like 1,2,4: speed-up is measured against one "
        "rank");
  if (axis(one.grid, scaling.along) != 1 || one.grid.ranks() != 1)
    throw Error(fmt::format(
        "scaling chooses the layout: leave out --dp, --tp and --pp, and say --along {} and --ranks",
        scaling.along));
  for (auto [name, given] : {std::pair("--ps", options.server_mode != ServerMode::None),
                             {"--checkpoint", !options.checkpoint.empty()},
                             {"--trace", !options.trace.empty()}})
    if (given) throw Error(fmt::format("scaling has no use for {}: leave it out", name));
  if (scaling.rounds < 1) throw Error(fmt::format("--rounds is {}, but must be at least 1", scaling.rounds));
  if (options.steps < 1)
    throw Error(fmt::format("--steps is {}, but scaling needs at least 1", options.steps));
  if (ranks != scaling.most())
    throw Error(fmt::format(
        "--ranks asks for up to {} ranks, but this job has {}: start `tutti run -n {}`, or no job "
        "at all for ranks that are threads",
        scaling.most(), ranks, scaling.most()));
  for (int count : scaling.ranks) check(on_ranks(scaling, options, count), count);
}

int measure_scaling(const ScalingOptions& scaling, const Options& options, const Corpus& corpus,
                    tutti::Communicator world) {
  const bool tells = world.rank() == 0;
  std::optional<OutputFile> report, metrics;
  if (tells && !options.report.empty()) report.emplace("--report", report_file(options.report));
  if (tells && !options.metrics.empty()) metrics.emplace("--metrics", options.metrics);
  Timeline timeline;
  RankGroup all(std::move(world), "world", &timeline);
  std::vector<Measured> measured(scaling.ranks.size());
  for (int round = 0; round < scaling.rounds; ++round)
    for (std::size_t i = 0; i < scaling.ranks.size(); ++i) {
      const int count = scaling.ranks[i];
      const bool takes_part = all.rank() < count;
      tutti::Communicator part = all.communicator().split(takes_part ? 0 : NCCL_SPLIT_NOCOLOR, all.rank());
      if (takes_part)
        train_round(on_ranks(scaling, options, count), scaling.rounds, corpus, std::move(part), measured[i]);
      if (any_rank_stops(all)) return stop_code();
      if (!tells) continue;
      fmt::print("round {}/{}, {} rank{}: {:.2f} ms a step\n", round + 1, scaling.rounds, count,
                 count > 1 ? "s" : "", 1e3 * median(measured[i].seconds));
      std::fflush(stdout);
    }
  if (!tells) return 0;
  Scaling result{.points = {}, .cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()))};
  for (std::size_t i = 0; i < measured.size(); ++i) {
    const Measured& m = measured[i];
    result.points.push_back({scaling.ranks[i], describe_layout(on_ranks(scaling, options, scaling.ranks[i])),
                             median(m.seconds), mean(m.computing), mean(m.waiting), m.imbalance});
  }
  tell(scaling, options, result, report ? &*report : nullptr, metrics ? &*metrics : nullptr);
  return 0;
}

}  // namespace trainer
