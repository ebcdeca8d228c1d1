// SPDX-License-Identifier: BSD-3-Clause
//
// Every layout trains the same model: losses of each step and the first gradients are those of one rank.
// Arguments: steps, then text files.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>

#include "support/ranks.hpp"
#include "worker.hpp"

namespace {

using namespace trainer;

struct Run {
  std::vector<double> losses;
  std::vector<float> gradients;  // of the first step, of the whole model
  double held_out = 0;
};

Run train(const Options& options, const Corpus& corpus) {
  check(options, options.grid.ranks());
  Run run;
  run.gradients.assign(static_cast<std::size_t>(parameter_count(model_units(options.shape))), NAN);
  std::mutex mutex;
  support::LocalRanks ranks(options.grid.ranks());
  ranks.run([&](int rank, ncclComm_t) {
    Worker worker(options, corpus,
                  tutti::Communicator(std::exchange(ranks.comms[static_cast<std::size_t>(rank)], nullptr)));
    for (Index step = 0; step < options.steps; ++step) {
      double loss = worker.step(step).loss;
      if (rank == 0) run.losses.push_back(loss);
      if (step > 0) continue;
      std::lock_guard lock(mutex);
      worker.for_each_gradient([&](Index first, const void* gradient, Index count) {
        convert(options.precision, gradient, Type::Float32, run.gradients.data() + first, count);
      });
    }
    double held_out = worker.held_out_loss(8);
    if (rank == 0) run.held_out = held_out;
  });
  return run;
}

double largest_loss_difference(const Run& run, const Run& reference) {
  double most = std::abs(run.held_out / reference.held_out - 1);
  for (std::size_t i = 0; i < run.losses.size(); ++i)
    most = std::max(most, std::abs(run.losses[i] / reference.losses[i] - 1));
  return most;
}

// Of a parameter: |g - g'| / |g'| in the 2-norm, the largest of all parameters. An element that no rank owned
// is NaN, and so is the result then.
double largest_gradient_difference(const Run& run, const Run& reference, const ModelShape& shape) {
  double most = 0;
  for (const UnitSpec& unit : model_units(shape))
    for (const ParameterSpec& parameter : unit.parameters) {
      double difference = 0, norm = 0;
      for (Index i = parameter.first; i < parameter.first + parameter.count(); ++i) {
        double a = run.gradients[static_cast<std::size_t>(i)],
               b = reference.gradients[static_cast<std::size_t>(i)];
        difference += (a - b) * (a - b);
        norm += b * b;
      }
      double relative = std::sqrt(difference / norm);
      if (!(relative <= most)) most = relative;
    }
  return most;
}

std::function<void(Options&)> pipelined(int stages, PipelineSchedule schedule, int chunks) {
  return [=](Options& o) {
    o.grid.pipeline = {.schedule = schedule, .stages = stages, .chunks = chunks};
    o.micro_batch = 2;
  };
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fputs("usage: layouts_test STEPS FILE...\n", stderr);
    return 2;
  }
  Options base;
  base.steps = std::atoi(argv[1]);
  base.data.assign(argv + 2, argv + argc);
  base.shape = preset("tiny");
  base.bucket_bytes = 1 << 20;
  const Corpus corpus(read_text(base.data), base.shape.context, base.held_out);

  struct Layout {
    const char* name;
    std::function<void(Options&)> set;
    double loss_tolerance = 1e-4, gradient_tolerance = 1e-5;
  };
  // 16-bit numbers have 8 (bf16) or 11 (fp16) bits: what the layouts round at other places differs by 2^-8 or
  // 2^-11 in single numbers, and much less in sums of many.
  const Layout layouts[] = {
      {"dp 2", [](Options& o) { o.grid.data = 2; }},
      {"dp 4", [](Options& o) { o.grid.data = 4; }},
      {"tp 2", [](Options& o) { o.grid.tensor = 2; }},
      {"tp 4", [](Options& o) { o.grid.tensor = 4; }},
      {"tp 2, sequence parallel", [](Options& o) { o.grid.tensor = 2, o.sequence_parallel = true; }},
      {"dp 2 x tp 2, sequence parallel",
       [](Options& o) { o.grid = {.data = 2, .tensor = 2}, o.sequence_parallel = true; }},
      {"zero 1, dp 2", [](Options& o) { o.grid.data = 2, o.zero = ZeroStage::Optimizer; }},
      {"zero 2, dp 2", [](Options& o) { o.grid.data = 2, o.zero = ZeroStage::Gradients; }},
      {"zero 3, dp 2", [](Options& o) { o.grid.data = 2, o.zero = ZeroStage::Parameters; }},
      {"zero 1, dp 4", [](Options& o) { o.grid.data = 4, o.zero = ZeroStage::Optimizer; }},
      {"zero 2, dp 4", [](Options& o) { o.grid.data = 4, o.zero = ZeroStage::Gradients; }},
      {"zero 3, dp 4", [](Options& o) { o.grid.data = 4, o.zero = ZeroStage::Parameters; }},
      {"zero 3, dp 2 x tp 2, accumulation 2",
       [](Options& o) {
         o.grid = {.data = 2, .tensor = 2}, o.zero = ZeroStage::Parameters, o.micro_batch = 2;
       }},
      {"recomputation", [](Options& o) { o.recompute = true; }},
      {"recomputation, tp 2", [](Options& o) { o.recompute = true, o.grid.tensor = 2; }},
      {"accumulation 4", [](Options& o) { o.micro_batch = 2; }},
      {"accumulation 4, dp 2", [](Options& o) { o.micro_batch = 1, o.grid.data = 2; }},
  };
  const Layout pipelines[] = {
      {"pp 2, gpipe, accumulation 4", pipelined(2, PipelineSchedule::GPipe, 1)},
      {"pp 2, 1f1b, accumulation 4", pipelined(2, PipelineSchedule::OneForwardOneBackward, 1)},
      {"pp 2, interleaved 2, accumulation 4", pipelined(2, PipelineSchedule::Interleaved, 2)},
      {"pp 4, gpipe, accumulation 4", pipelined(4, PipelineSchedule::GPipe, 1)},
      {"pp 4, 1f1b, accumulation 4", pipelined(4, PipelineSchedule::OneForwardOneBackward, 1)},
      {"pp 4, interleaved 2, accumulation 4", pipelined(4, PipelineSchedule::Interleaved, 2)},
      {"pp 3 (uneven), 1f1b, accumulation 8",
       [](Options& o) {
         pipelined(3, PipelineSchedule::OneForwardOneBackward, 1)(o);
         o.micro_batch = 1;
       }},
      {"dp 2 x tp 2 x pp 2, 1f1b",
       [](Options& o) {
         pipelined(2, PipelineSchedule::OneForwardOneBackward, 1)(o);
         o.grid.data = o.grid.tensor = 2;
       }},
      {"dp 2 x tp 2 x pp 2, 1f1b, zero 1, sequence parallel, recomputation",
       [](Options& o) {
         pipelined(2, PipelineSchedule::OneForwardOneBackward, 1)(o);
         o.grid.data = o.grid.tensor = 2;
         o.zero = ZeroStage::Optimizer, o.sequence_parallel = o.recompute = true;
       }},
  };
  const Layout variants[] = {
      {"untied head with dropout", [](Options& o) { o.shape.tied = false, o.shape.dropout = 0.1F; }},
  };
  int failures = 0;
  auto compare = [&](const Options& one_rank, const Layout& layout, const Run& reference) {
    Options options = one_rank;
    layout.set(options);
    Run run = train(options, corpus);
    double loss = largest_loss_difference(run, reference);
    double gradient = largest_gradient_difference(run, reference, options.shape);
    bool good = loss <= layout.loss_tolerance && gradient <= layout.gradient_tolerance;
    failures += !good;
    fmt::print("{:<40} losses differ by {:.1e}, first gradients by {:.1e}{}\n", layout.name, loss, gradient,
               good ? "" : "   TOO MUCH");
    std::fflush(stdout);
  };

  const Run reference = train(base, corpus);
  fmt::print("one rank: loss {:.4f} -> {:.4f}, held out {:.4f}\n", reference.losses.front(),
             reference.losses.back(), reference.held_out);
  for (const Layout& layout : layouts) compare(base, layout, reference);
  for (const Layout& layout : pipelines) compare(base, layout, reference);

  Options varied = base;
  variants[0].set(varied);
  const Run varied_reference = train(varied, corpus);
  for (const Layout& layout : {layouts[0], layouts[4], layouts[12], pipelines[2], pipelines[7]})
    compare(varied, layout, varied_reference);

  for (Type type : {Type::Bfloat16, Type::Float16}) {
    Options narrow = base;
    narrow.precision = type;
    const Run narrow_reference = train(narrow, corpus);
    fmt::print("{}: loss {:.4f} -> {:.4f}\n", name_of(type), narrow_reference.losses.front(),
               narrow_reference.losses.back());
    for (Layout layout : {layouts[0], layouts[4], layouts[12], pipelines[5]}) {
      layout.loss_tolerance = 2e-3;
      layout.gradient_tolerance = type == Type::Bfloat16 ? 3e-2 : 4e-3;
      compare(narrow, layout, narrow_reference);
    }
  }
  return failures == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
