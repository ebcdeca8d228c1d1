// SPDX-License-Identifier: BSD-3-Clause
#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace trainer {

namespace {

void require_divisible(const char* what, Index value, const char* among, Index parts) {
  if (value % parts != 0)
    throw Error(fmt::format("{} {} cannot be divided among {} {}: choose another of the two", what, value,
                            among, parts));
}

void check_model(const ModelShape& shape) {
  for (auto [name, value] : {std::pair("--layers", shape.layers), std::pair("--width", shape.width),
                             std::pair("--heads", shape.heads), std::pair("--context", shape.context)})
    if (value < 1) throw Error(fmt::format("{} is {}, but must be at least 1", name, value));
  require_divisible("--width", shape.width, "--heads", shape.heads);
  if (!(shape.dropout >= 0 && shape.dropout < 1))
    throw Error(fmt::format("--dropout is {}, but must be at least 0 and below 1", shape.dropout));
}

}  // namespace

void check(const Options& o, int ranks) {
  check_model(o.shape);
  if (o.grid.data < 1 || o.grid.tensor < 1)
    throw Error(fmt::format("--dp {} and --tp {} must be at least 1", o.grid.data, o.grid.tensor));
  if (o.grid.ranks() != ranks)
    throw Error(
        fmt::format("--dp {} x --tp {} makes {} ranks, but this job has {}: change either, or start "
                    "`tutti run -n {}`",
                    o.grid.data, o.grid.tensor, o.grid.ranks(), ranks, o.grid.ranks()));
  require_divisible("--heads", o.shape.heads, "--tp", o.grid.tensor);
  require_divisible("the vocabulary of", o.shape.vocabulary, "--tp", o.grid.tensor);
  if (o.steps < 0) throw Error(fmt::format("--steps is {}, but must be at least 0", o.steps));
  if (o.batch < 1) throw Error(fmt::format("--batch is {}, but must be at least 1", o.batch));
  if (o.micro_batch < 0)
    throw Error(fmt::format("--micro-batch is {}, but must be at least 1", o.micro_batch));
  require_divisible("--batch", o.batch, "--dp", o.grid.data);
  require_divisible("a rank's share of --batch,", o.samples_per_rank(), "--micro-batch", o.samples_at_once());
  if (!(o.held_out > 0 && o.held_out < 1))
    throw Error(fmt::format("--held-out is {}, but must lie between 0 and 1", o.held_out));
  if (o.sequence_parallel)
    require_divisible("the tokens of a micro-batch,", o.samples_at_once() * o.shape.context, "--tp",
                      o.grid.tensor);
  if (o.evaluate_every < 1)
    throw Error(fmt::format("--evaluate-every is {}, but must be at least 1", o.evaluate_every));
  if (o.learning.warm_up < 0)
    throw Error(fmt::format("--warm-up is {}, but must be at least 0", o.learning.warm_up));
}

std::string agreement(const Options& o) {
  const ModelShape& s = o.shape;
  const LearningOptions& l = o.learning;
  return fmt::format(
      "data {} held-out {} layers {} width {} heads {} context {} tied {} dropout {} precision {} seed {} dp "
      "{} tp {} "
      "sequence-parallel {} zero {} bucket {} recompute {} steps {} batch {} micro-batch {} rate {} {} "
      "warm-up {} "
      "beta {} {} decay {} clip {} evaluate {}",
      fmt::join(o.data, ","), o.held_out, s.layers, s.width, s.heads, s.context, s.tied, s.dropout,
      name_of(o.precision), o.seed, o.grid.data, o.grid.tensor, o.sequence_parallel, static_cast<int>(o.zero),
      o.bucket_bytes, o.recompute, o.steps, o.batch, o.micro_batch, l.rate, l.least_rate, l.warm_up, l.beta1,
      l.beta2, l.decay, l.clip, o.evaluate_every);
}

}  // namespace trainer
