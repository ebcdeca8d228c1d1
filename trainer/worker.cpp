// SPDX-License-Identifier: BSD-3-Clause
#include "worker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace trainer {

namespace {

std::vector<UnitLayout> make_layouts(const std::vector<UnitSpec>& units, TensorShard shard) {
  std::vector<UnitLayout> layouts;
  for (const UnitSpec& unit : units) layouts.emplace_back(unit, shard);
  return layouts;
}

std::vector<const UnitLayout*> pointers(const std::vector<UnitLayout>& layouts) {
  std::vector<const UnitLayout*> result;
  for (const UnitLayout& layout : layouts) result.push_back(&layout);
  return result;
}

// Ranks that were asked for different runs would send each other arrays of different sizes, or worse, of
// equal ones.
void require_agreement(const Options& options, RankGroup& world) {
  constexpr std::size_t kLength = 2048;
  std::string mine = agreement(options);
  mine.resize(kLength, '\0');
  std::string all(kLength * static_cast<std::size_t>(world.size()), '\0');
  if (world.size() > 1)
    tutti::check(
        ncclAllGather(mine.data(), all.data(), kLength, ncclChar, world.communicator().get(), nullptr));
  for (int r = 0; r < world.size(); ++r) {
    std::string theirs = all.substr(static_cast<std::size_t>(r) * kLength, kLength);
    if (world.size() > 1 && theirs != mine)
      throw Error(fmt::format("ranks were started with different options: rank {}: {}\nrank {}: {}",
                              world.rank(), mine.c_str(), r, theirs.c_str()));
  }
}

Grid make_grid(const Options& options, tutti::Communicator communicator) {
  RankGroup world(std::move(communicator));
  require_agreement(options, world);
  return {options.grid, std::move(world)};
}

}  // namespace

Worker::Worker(const Options& options, const Corpus& corpus, tutti::Communicator world)
    : options_(options),
      corpus_(corpus),
      products_(options.precision),
      grid_(make_grid(options, std::move(world))),
      tensor_(grid_.tensor, memory_, options.sequence_parallel),
      units_(model_units(options.shape)),
      layouts_(make_layouts(units_, tensor_.shard())),
      states_(memory_, options.precision, pointers(layouts_), {grid_.data, grid_.data_gather}, options.zero,
              options.bucket_bytes),
      stage_(options.shape, layouts_, states_),
      loss_scale_(options.precision == Type::Float16) {
  states_.start(options.seed);
}

Pass Worker::pass(Index samples, Index first_sample, Index step, bool training) {
  return {.shape = options_.shape,
          .memory = memory_,
          .products = products_,
          .tensor = tensor_,
          .samples = samples,
          .first_sample = first_sample,
          .training = training,
          .recompute = training && options_.recompute,
          .seed = options_.seed,
          .step = step};
}

namespace {

void append(MicroBatch& batch, Corpus::Sample sample, Index context) {
  batch.tokens.insert(batch.tokens.end(), sample.tokens, sample.tokens + context);
  batch.targets.insert(batch.targets.end(), sample.tokens + 1, sample.tokens + context + 1);
}

}  // namespace

MicroBatch Worker::batch(Index number_in_step, Index step) const {
  MicroBatch batch{.first_sample = number_in_step, .tokens = {}, .targets = {}};
  for (Index i = 0; i < options_.samples_at_once(); ++i)
    append(batch, corpus_.training(options_.seed, step * options_.batch + number_in_step + i),
           options_.shape.context);
  return batch;
}

Worker::StepResult Worker::step(Index step) {
  auto start = std::chrono::steady_clock::now();
  double blocked_before = blocked();
  // Each token's share of the mean over the whole batch, so that sums over ranks and micro-batches are the
  // gradient.
  const double share = 1.0 / static_cast<double>(options_.batch * options_.shape.context);
  const float scale = static_cast<float>(share) * loss_scale_.value();
  const Index first = grid_.data.rank() * options_.samples_per_rank();
  double loss = 0;
  for (Index m = 0; m < options_.micro_batches(); ++m) {
    MicroBatch batch = this->batch(first + m * options_.samples_at_once(), step);
    Pass pass = this->pass(options_.samples_at_once(), batch.first_sample, step, true);
    loss += stage_.forward(pass, batch, scale);
    stage_.backward(pass, batch, m + 1 == options_.micro_batches());
  }
  states_.wait_for_gradients();
  sum_norm_gradients();

  StepResult result{};
  grid_.data.all_reduce(&loss, 1);
  result.loss = loss * share;
  result.gradient_norm = gradient_norm() / static_cast<double>(loss_scale_.value());
  result.rate = learning_rate(options_.learning, step, options_.steps);
  const float unscale = 1.0F / loss_scale_.value();
  const float clip = options_.learning.clip;
  bool finite = std::isfinite(result.gradient_norm);
  if (!finite && options_.precision != Type::Float16)
    throw Error(
        fmt::format("step {}: the gradients are not finite (norm {}): choose a smaller --rate, or look at "
                    "the data",
                    step, result.gradient_norm));
  result.skipped = !loss_scale_.accept(finite);
  if (result.skipped) {
    states_.forget_gradients();
  } else {
    auto norm = static_cast<float>(result.gradient_norm);
    float factor = unscale * (clip > 0 && norm > clip ? clip / norm : 1.0F);
    const AdamW how = adamw_of(options_.learning, result.rate, updates_, factor);
    states_.for_each_owned([&](const ModelStates::Owned& owned) {
      AdamW with_decay = how;
      if (!owned.parameter.spec->decays) with_decay.decay = 0;
      adamw(options_.precision, with_decay, owned.gradient, owned.weights, owned.m, owned.v, owned.count);
    });
    states_.publish();
    ++updates_;
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  result.blocked_seconds = blocked() - blocked_before;
  return result;
}

// Under sequence parallelism a rank's norms have seen its own tokens alone.
void Worker::sum_norm_gradients() {
  if (!tensor_.splits_tokens()) return;
  tutti::GroupScope together;
  states_.for_each_owned([&](const ModelStates::Owned& owned) {
    if (owned.parameter.spec->is_norm)
      grid_.tensor.all_reduce(options_.precision, owned.gradient, owned.count);
  });
  together.end();
}

double Worker::gradient_norm() {
  double sum = 0;
  states_.for_each_owned([&](const ModelStates::Owned& owned) {
    // What every rank of the tensor group has in full counts once.
    if (owned.parameter.spec->split == Split::None && grid_.tensor.rank() != 0) return;
    sum += sum_of_squares(options_.precision, owned.gradient, owned.count);
  });
  grid_.tensor.all_reduce(&sum, 1);
  if (states_.stage() != ZeroStage::None) grid_.data.all_reduce(&sum, 1);
  return std::sqrt(sum);
}

double Worker::held_out_loss(Index samples) {
  const Index context = options_.shape.context, ranks = grid_.data.size();
  samples = std::min(samples, corpus_.held_out_samples());
  // One by one, so that the same samples count in every layout; all data-parallel ranks take as many, for
  // stage 3 gathers parameters in each.
  double loss = 0;
  for (Index first = 0; first < samples; first += ranks) {
    MicroBatch batch{.first_sample = 0, .tokens = {}, .targets = {}};
    const Index number = first + grid_.data.rank();
    append(batch, corpus_.held_out(std::min(number, samples - 1)), context);
    double sample_loss = stage_.forward(pass(1, 0, 0, false), batch, 1.0F);
    if (number < samples) loss += sample_loss;
  }
  grid_.data.all_reduce(&loss, 1);
  return loss / static_cast<double>(samples * context);
}

void Worker::for_each_gradient(const std::function<void(Index, const void*, Index)>& f) {
  states_.for_each_owned([&](const ModelStates::Owned& owned) {
    const Index begin = owned.parameter.offset + owned.first, end = begin + owned.count;
    layouts_[owned.unit].for_each_run(owned.parameter, [&](Index place, Index number, Index length) {
      const Index from = std::max(place, begin), to = std::min(place + length, end);
      if (from < to)
        f(number + from - place, advance(owned.gradient, options_.precision, from - begin), to - from);
    });
  });
}

double Worker::blocked() const {
  return grid_.world.traffic().blocked + grid_.tensor.traffic().blocked + grid_.data.traffic().blocked +
         grid_.data_gather.traffic().blocked;
}

}  // namespace trainer
