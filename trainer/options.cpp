// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>

namespace trainer {

namespace {

void require_divisible(const char* what, Index value, const char* among, Index parts) {
  if (value % parts != 0)
    throw Error(fmt::format("{} {} cannot be divided among {} {}: choose another of the two", what, value,
                            among, parts));
}

void check_model(const ModelShape& shape) {
  constexpr Index kMost = 65536;  // so that no product of sizes overflows
  for (auto [name, value] : {std::pair("--layers", shape.layers), std::pair("--width", shape.width),
                             std::pair("--heads", shape.heads), std::pair("--context", shape.context)})
    if (value < 1 || value > kMost)
      throw Error(fmt::format("{} is {}, but must lie between 1 and {}", name, value, kMost));
  require_divisible("--width", shape.width, "--heads", shape.heads);
  if (!(shape.dropout >= 0 && shape.dropout < 1))
    throw Error(fmt::format("--dropout is {}, but must be at least 0 and below 1", shape.dropout));
}

void check_learning(const LearningOptions& o) {
  for (auto [name, value] : {std::pair("--rate", o.rate), std::pair("--least-rate", o.least_rate),
                             std::pair("--decay", o.decay), std::pair("--clip", o.clip)})
    if (!(value >= 0 && value <= 1e6F))
      throw Error(fmt::format("{} is {}, but must lie between 0 and a million", name, value));
  if (o.warm_up < 0) throw Error(fmt::format("--warm-up is {}, but must be at least 0", o.warm_up));
}

}  // namespace

namespace {

void check_grid(const Options& o, int ranks) {
  const GridShape& grid = o.grid;
  const PipelineShape& pipeline = grid.pipeline;
  constexpr int kMostRanks = 1024;  // along an axis
  for (auto [name, value] : {std::pair("--dp", grid.data), std::pair("--tp", grid.tensor),
                             std::pair("--pp", pipeline.stages), std::pair("--chunks", pipeline.chunks)})
    if (value < 1 || value > kMostRanks)
      throw Error(fmt::format("{} is {}, but must lie between 1 and {}", name, value, kMostRanks));
  if (o.servers > kMostRanks)
    throw Error(fmt::format("--servers is {}, but must lie between 1 and {}", o.servers, kMostRanks));
  if (o.ranks() != ranks)
    throw Error(fmt::format(
        "--dp {} x --tp {} x --pp {}{} makes {} ranks, but this job has {}: change one of them, or "
        "start `tutti run -n {}`",
        grid.data, grid.tensor, pipeline.stages,
        o.servers > 0 ? fmt::format(" and --servers {}", o.servers) : "", o.ranks(), ranks, o.ranks()));
}

void check_servers(const Options& o) {
  const bool serves = o.server_mode != ServerMode::None;
  if (serves ? o.servers < 1 : o.servers != 0)
    throw Error(serves ? fmt::format("--ps needs --servers of at least 1, but it is {}", o.servers)
                       : fmt::format("--servers {} needs --ps sync or async", o.servers));
  if (!serves) return;
  if (o.grid.tensor > 1 || o.grid.pipeline.stages > 1 || o.zero != ZeroStage::None)
    throw Error(
        "--ps is another way of data parallelism, with whole models on its workers: leave out --tp, --pp and "
        "--zero");
  if (o.precision == Type::Float16)
    throw Error("--ps does not scale losses: choose --precision fp32 or bf16");
  if (o.timed_block > 0)
    throw Error("--compute timed has no updates for --ps to make: leave out one of the two");
}

void check_pipeline(const Options& o) {
  const PipelineShape& pipeline = o.grid.pipeline;
  const bool interleaved = pipeline.schedule == PipelineSchedule::Interleaved;
  if (interleaved && (pipeline.stages < 2 || pipeline.chunks < 2))
    throw Error(
        fmt::format("--schedule interleaved needs a --pp of at least 2 (it is {}) and --chunks of at "
                    "least 2 (it is {})",
                    pipeline.stages, pipeline.chunks));
  if (!interleaved && pipeline.chunks > 1)
    throw Error(fmt::format("--chunks {} needs --schedule interleaved, but it is {}", pipeline.chunks,
                            name_of(pipeline.schedule)));
  if (o.shape.layers < Index{pipeline.stages} * pipeline.chunks)
    throw Error(
        fmt::format("--layers {} are fewer than --pp {} x --chunks {}: each stage needs a layer for "
                    "each of its chunks",
                    o.shape.layers, pipeline.stages, pipeline.chunks));
  if (interleaved && o.micro_batches() % pipeline.stages != 0)
    throw Error(
        fmt::format("--schedule interleaved takes micro-batches in groups of --pp {}, but a step has "
                    "{} (--batch {} / --dp {} / --micro-batch {})",
                    pipeline.stages, o.micro_batches(), o.batch, o.grid.data, o.samples_at_once()));
  if (pipeline.stages > 1 && o.zero >= ZeroStage::Gradients)
    throw Error(
        fmt::format("--zero {} reduces gradients after every micro-batch, which a pipeline has many "
                    "of: with --pp {} choose --zero 0 or 1",
                    static_cast<int>(o.zero), pipeline.stages));
}

void check_checkpoints(const Options& o) {
  if (o.checkpoint_every < 1)
    throw Error(fmt::format("--checkpoint-every is {}, but must be at least 1", o.checkpoint_every));
  if (o.keep < 1) throw Error(fmt::format("--keep is {}, but must be at least 1", o.keep));
  if (o.resume && o.checkpoint.empty())
    throw Error("--resume needs the folder to go on from: --checkpoint DIR");
  if (o.timed_block > 0 && !o.checkpoint.empty())
    throw Error("--compute timed trains nothing that --checkpoint could save: leave out one of the two");
}

}  // namespace

void check_held_out(double share) {
  if (!(share > 0 && share < 1))
    throw Error(fmt::format("--held-out is {}, but must lie between 0 and 1", share));
}

void check(const Options& o, int ranks) {
  check_model(o.shape);
  check_servers(o);
  check_grid(o, ranks);
  require_divisible("--heads", o.shape.heads, "--tp", o.grid.tensor);
  require_divisible("the vocabulary of", o.shape.vocabulary, "--tp", o.grid.tensor);
  if (o.steps < 0) throw Error(fmt::format("--steps is {}, but must be at least 0", o.steps));
  constexpr Index kMostSamples = 1 << 20;
  if (o.batch < 1 || o.batch > kMostSamples)
    throw Error(fmt::format("--batch is {}, but must lie between 1 and {}", o.batch, kMostSamples));
  if (o.micro_batch < 0)
    throw Error(fmt::format("--micro-batch is {}, but must be at least 1", o.micro_batch));
  require_divisible("--batch", o.batch, "--dp", o.grid.data);
  require_divisible("a rank's share of --batch,", o.samples_per_rank(), "--micro-batch", o.samples_at_once());
  check_pipeline(o);
  constexpr double kLongestBlock = 60;
  if (!(o.timed_block >= 0 && o.timed_block <= kLongestBlock))
    throw Error(fmt::format("--compute timed:{} must lie between 0 and {} ms", o.timed_block * 1e3,
                            kLongestBlock * 1e3));
  check_held_out(o.held_out);
  if (o.sequence_parallel)
    require_divisible("the tokens of a micro-batch,", o.samples_at_once() * o.shape.context, "--tp",
                      o.grid.tensor);
  if (o.evaluate_every < 1)
    throw Error(fmt::format("--evaluate-every is {}, but must be at least 1", o.evaluate_every));
  if (o.log_every < 1) throw Error(fmt::format("--log-every is {}, but must be at least 1", o.log_every));
  if (o.bucket_bytes < 1)
    throw Error(fmt::format("--bucket-bytes is {}, but must be at least 1", o.bucket_bytes));
  check_learning(o.learning);
  check_checkpoints(o);
}

std::string describe(const ModelShape& shape) {
  return fmt::format("{} layers, width {}, {} heads, context {}, vocabulary {}, {} head", shape.layers,
                     shape.width, shape.heads, shape.context, shape.vocabulary,
                     shape.tied ? "tied" : "untied");
}

std::string describe_layout(const Options& o) {
  const PipelineShape& pipeline = o.grid.pipeline;
  std::string text = fmt::format("dp {} x tp {} x pp {}", o.grid.data, o.grid.tensor, pipeline.stages);
  if (pipeline.stages > 1)
    text += fmt::format(" ({}, {} micro-batches", name_of(pipeline.schedule), o.micro_batches());
  if (pipeline.chunks > 1) text += fmt::format(", {} chunks", pipeline.chunks);
  if (pipeline.stages > 1) text += ")";
  if (o.sequence_parallel) text += ", sequence parallelism";
  if (o.zero != ZeroStage::None) text += fmt::format(", ZeRO stage {}", static_cast<int>(o.zero));
  if (o.server_mode != ServerMode::None)
    text += fmt::format(", {} {} parameter server{}", o.servers,
                        o.server_mode == ServerMode::Synchronous ? "synchronous" : "asynchronous",
                        o.servers > 1 ? "s" : "");
  if (o.recompute) text += ", recomputation";
  return text;
}

std::string agreement(const Options& o) {
  const ModelShape& s = o.shape;
  const LearningOptions& l = o.learning;
  return fmt::format(
      "data {} tokenizer {} held-out {} layers {} width {} heads {} context {} tied {} dropout {} precision "
      "{} seed {} dp "
      "{} tp {} pp {} schedule {} chunks {} "
      "ps {} servers {} compute {} sequence-parallel {} zero {} bucket {} recompute {} steps {} batch {} "
      "micro-batch {} rate "
      "{} {} "
      "warm-up {} "
      "beta {} {} decay {} clip {} evaluate {} checkpoint {} every {} trace {} report {} metrics {}",
      fmt::join(o.data, ","), std::hash<std::string>()(o.tokenizer->model()), o.held_out, s.layers, s.width,
      s.heads, s.context, s.tied, s.dropout, name_of(o.precision), o.seed, o.grid.data, o.grid.tensor,
      o.grid.pipeline.stages, name_of(o.grid.pipeline.schedule), o.grid.pipeline.chunks,
      static_cast<int>(o.server_mode), o.servers, o.timed_block, o.sequence_parallel,
      static_cast<int>(o.zero), o.bucket_bytes, o.recompute, o.steps, o.batch, o.micro_batch, l.rate,
      l.least_rate, l.warm_up, l.beta1, l.beta2, l.decay, l.clip, o.evaluate_every, o.checkpoint,
      o.checkpoint_every, o.trace, o.report, o.metrics);
}

}  // namespace trainer
