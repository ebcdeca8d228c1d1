// SPDX-License-Identifier: BSD-3-Clause
//
// Every layout trains the same model: losses of each step and the first gradients are those of one rank.
// Arguments: steps, tokens of a sample, then text files.
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

// What a rank contributes to the run; rank 0 is a worker always.
class Recorder {
 public:
  Recorder(Run& run, Type type) : run_(run), type_(type) {}
  void loss(double loss) { run_.losses.push_back(loss); }
  void gradient(Index first, const void* gradient, Index count) {
    std::lock_guard lock(mutex_);
    convert(type_, gradient, Type::Float32, run_.gradients.data() + first, count);
  }

 private:
  Run& run_;
  Type type_;
  std::mutex mutex_;
};

void work(const Options& options, Worker& worker, Recorder& recorder, bool leads, double& held_out) {
  for (Index step = 0; step < options.steps; ++step) {
    const double loss = worker.step(step).loss;
    if (leads) recorder.loss(loss);
    if (step == 0)
      worker.for_each_gradient(
          [&](Index first, const void* gradient, Index count) { recorder.gradient(first, gradient, count); });
  }
  const double loss = worker.held_out_loss(8);
  if (leads) held_out = loss;
}

void serve(const Options& options, ServedWorld& served, Timeline& timeline, Recorder& recorder) {
  const std::vector<UnitSpec> units = model_units(options.shape);
  const std::vector<UnitLayout> layouts = layouts_of(units, {});
  ParameterServer server(served, options.learning, options.steps, options.precision, layouts, timeline);
  server.start(options.seed);
  for (Index step = 0; step < options.steps; ++step) {
    server.step(step);
    if (step == 0)
      server.states().for_each_owned_run(
          [&](const ModelStates::Owned& owned, Index number, Index place, Index length) {
            recorder.gradient(number, advance(owned.gradient, options.precision, place), length);
          });
  }
}

Run train(const Options& options, const Corpus& corpus) {
  check(options, options.ranks());
  Run run;
  run.gradients.assign(static_cast<std::size_t>(parameter_count(model_units(options.shape))), NAN);
  Recorder recorder(run, options.precision);
  support::LocalRanks ranks(options.ranks());
  ranks.run([&](int rank, ncclComm_t) {
    tutti::Communicator world(std::exchange(ranks.comms[static_cast<std::size_t>(rank)], nullptr));
    if (options.servers == 0) {
      Worker worker(options, corpus, std::move(world));
      work(options, worker, recorder, rank == 0, run.held_out);
      return;
    }
    Timeline timeline;
    ServedWorld served(options.grid.ranks(), options.servers, RankGroup(std::move(world), "world", &timeline),
                       timeline);
    if (served.is_server()) {
      serve(options, served, timeline, recorder);
    } else {
      Worker worker(options, corpus, served);
      work(options, worker, recorder, rank == 0, run.held_out);
    }
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

void serve_by(Options& o, int workers, int servers) {
  o.grid.data = workers;
  o.servers = servers;
  o.server_mode = ServerMode::Synchronous;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 4) {
    std::fputs("usage: layouts_test STEPS CONTEXT FILE...\n", stderr);
    return 2;
  }
  Options base;
  base.steps = std::atoi(argv[1]);
  base.data.assign(argv + 3, argv + argc);
  base.shape = preset("tiny");
  base.shape.context = std::atoi(argv[2]);
  base.bucket_bytes = 1 << 20;
  const Corpus corpus(read_text(base.data), *base.tokenizer, base.shape.context, base.held_out);

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
  const Layout served[] = {
      {"ps sync, 2 workers, 1 server", [](Options& o) { serve_by(o, 2, 1); }},
      {"ps sync, 2 workers, 3 servers", [](Options& o) { serve_by(o, 2, 3); }},
      {"ps sync, 4 workers, 2 servers, accumulation 2",
       [](Options& o) { serve_by(o, 4, 2), o.micro_batch = 1; }},
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
    fmt::print("{:<67} losses differ by {:.1e}, first gradients by {:.1e}{}\n", layout.name, loss, gradient,
               good ? "" : "   TOO MUCH");
    std::fflush(stdout);
  };

  const Run reference = train(base, corpus);
  fmt::print("one rank: loss {:.4f} -> {:.4f}, held out {:.4f}\n", reference.losses.front(),
             reference.losses.back(), reference.held_out);
  for (const Layout& layout : layouts) compare(base, layout, reference);
  for (const Layout& layout : pipelines) compare(base, layout, reference);
  for (const Layout& layout : served) compare(base, layout, reference);

  Options varied = base;
  variants[0].set(varied);
  const Run varied_reference = train(varied, corpus);
  for (const Layout& layout : {layouts[0], layouts[4], layouts[12], pipelines[2], pipelines[7], served[2]})
    compare(varied, layout, varied_reference);

  for (Type type : {Type::Bfloat16, Type::Float16}) {
    Options narrow = base;
    narrow.precision = type;
    const Run narrow_reference = train(narrow, corpus);
    fmt::print("{}: loss {:.4f} -> {:.4f}\n", name_of(type), narrow_reference.losses.front(),
               narrow_reference.losses.back());
    std::vector<Layout> narrow_layouts = {layouts[0], layouts[4], layouts[12], pipelines[5]};
    if (type == Type::Bfloat16) narrow_layouts.push_back(served[0]);  // servers do not scale losses
    for (Layout layout : narrow_layouts) {
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
