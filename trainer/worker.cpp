// SPDX-License-Identifier: BSD-3-Clause
#include "worker.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "parallel/timed_chunk.hpp"

namespace trainer {

namespace {

Grid make_grid(const Options& options, const Corpus& corpus, const Checkpoint* checkpoint,
               tutti::Communicator communicator, Timeline& timeline) {
  RankGroup world(std::move(communicator), "world", &timeline);
  require_agreement(options, corpus, checkpoint, world);
  timeline.start();
  return {options.grid, std::move(world), timeline};
}

std::vector<ChunkShape> make_chunk_shapes(const ModelShape& model, const PipelineShape& pipeline, int stage) {
  std::vector<ChunkShape> chunks;
  for (int c = 0; c < pipeline.chunks; ++c)
    chunks.push_back(chunk_shape(model, pipeline.stages * pipeline.chunks, c * pipeline.stages + stage));
  return chunks;
}

}  // namespace

// Ranks that were asked for different runs would send each other arrays of different sizes, or worse, of
// equal ones.
void require_agreement(const Options& options, const Corpus& corpus, const Checkpoint* checkpoint,
                       RankGroup& world) {
  constexpr std::size_t kLength = 4096;
  std::string mine = fmt::format("{} tokens {} resumed at {}", agreement(options), corpus.training_tokens(),
                                 checkpoint == nullptr ? 0 : checkpoint->info().step);
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

CheckpointInfo checkpoint_info(const Options& options, Index steps, Index updates) {
  return {.step = steps,
          .updates = updates,
          .shape = options.shape,
          .seed = options.seed,
          .batch = options.batch,
          .tokenizer = options.tokenizer->model(),
          .data = fmt::format("{}", fmt::join(options.data, " ")),
          .layout = describe_layout(options)};
}

Worker::Worker(const Options& options, const Corpus& corpus, tutti::Communicator world,
               const Checkpoint* checkpoint)
    : Worker(options, corpus, std::move(world), checkpoint, nullptr) {}

Worker::Worker(const Options& options, const Corpus& corpus, ServedWorld& served,
               const Checkpoint* checkpoint)
    : Worker(options, corpus, std::move(served.own), checkpoint, &served) {
  served.watch(timeline_);
}

Worker::Worker(const Options& options, const Corpus& corpus, tutti::Communicator world,
               const Checkpoint* checkpoint, ServedWorld* served)
    : options_(options),
      corpus_(corpus),
      products_(options.precision),
      grid_(make_grid(options, corpus, checkpoint, std::move(world), timeline_)),
      tensor_(grid_.tensor, memory_, options.sequence_parallel),
      model_(model_units(options.shape)),
      chunks_(make_chunk_shapes(options.shape, options.grid.pipeline, grid_.pipeline.rank())),
      units_(own_units()),
      layouts_(layouts_of(units_, tensor_.shard())),
      states_(memory_, options.precision, layouts_, {grid_.data, grid_.data_gather}, options.zero,
              options.bucket_bytes, options.servers),
      stage_(options.grid.pipeline, make_chunks(), grid_, memory_, timeline_),
      servers_(served == nullptr ? nullptr
                                 : std::make_unique<ServerClient>(*served, options.server_mode, states_,
                                                                  memory_, options.precision)),
      loss_scale_(options.precision == Type::Float16) {
  if (checkpoint == nullptr) {
    states_.start(options.seed);
    return;
  }
  states_.load(checkpoint->source());
  const CheckpointInfo& info = checkpoint->info();
  updates_ = info.updates;
  loss_scale_.resume(info.loss_scale, info.good_steps);
}

std::vector<UnitSpec> Worker::own_units() const {
  std::vector<UnitSpec> units;
  for (const ChunkShape& chunk : chunks_)
    for (UnitSpec& unit : chunk_units(model_, options_.shape, chunk)) units.push_back(std::move(unit));
  return units;
}

std::vector<std::unique_ptr<Chunk>> Worker::make_chunks() {
  std::vector<std::unique_ptr<Chunk>> chunks;
  std::size_t first_unit = 0;
  for (const ChunkShape& shape : chunks_) {
    const std::size_t units = chunk_units(model_, options_.shape, shape).size();
    std::span layouts = std::span<const UnitLayout>(layouts_).subspan(first_unit, units);
    if (options_.timed_block > 0)
      chunks.push_back(std::make_unique<TimedChunk>(options_.shape, shape, layouts, first_unit, states_,
                                                    std::chrono::duration<double>(options_.timed_block)));
    else
      chunks.push_back(std::make_unique<ModelChunk>(options_.shape, shape, layouts, first_unit, states_));
    first_unit += units;
  }
  return chunks;
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
  const double start = timeline_.now(), waited_before = timeline_.seconds(Activity::Wait);
  // An asynchronous update takes the gradient of one worker's samples, any other that of the whole batch.
  const bool alone = options_.server_mode == ServerMode::Asynchronous;
  const Index samples = alone ? options_.samples_per_rank() : options_.batch;
  // Each token's share of the mean, so that sums over ranks and micro-batches are the gradient.
  const double share = 1.0 / static_cast<double>(samples * options_.shape.context);
  const float scale = static_cast<float>(share) * loss_scale_.value();
  const Index first = grid_.data.rank() * options_.samples_per_rank();
  const Stage::Work work{
      .count = options_.micro_batches(),
      .batch = [&](Index m) { return batch(first + m * options_.samples_at_once(), step); },
      .pass =
          [&](const MicroBatch& batch) {
            return pass(options_.samples_at_once(), batch.first_sample, step, true);
          }};
  auto computing = [&] {
    return timeline_.seconds(Activity::Forward) + timeline_.seconds(Activity::Backward);
  };
  const double computing_before = computing();
  const std::vector<double> losses = stage_.train(work, scale);
  double loss_and_computing[] = {std::accumulate(losses.begin(), losses.end(), 0.0),
                                 computing() - computing_before};
  grid_.pipeline.all_reduce(loss_and_computing, 2);
  StepResult result{};
  result.bubble = 1 - loss_and_computing[1] / (grid_.pipeline.size() * (timeline_.now() - start));
  double loss = loss_and_computing[0];
  if (!alone) grid_.data.all_reduce(&loss, 1);
  result.loss = loss * share;
  result.rate = learning_rate(options_.learning, step, options_.steps);
  if (servers_) {
    const ServerClient::Reply reply = servers_->exchange();
    result.gradient_norm = reply.gradient_norm;
    result.staleness = reply.staleness;
    ++updates_;
  } else {
    finish_step(step, result);
  }
  result.seconds = timeline_.now() - start;
  result.blocked_seconds = timeline_.seconds(Activity::Wait) - waited_before;
  return result;
}

void Worker::finish() {
  if (servers_ && options_.server_mode == ServerMode::Asynchronous) servers_->finish();
}

// Brings the gradients together and updates what this rank owns.
void Worker::finish_step(Index step, StepResult& result) {
  sum_tied_gradients();
  states_.wait_for_gradients();
  sum_norm_gradients();
  result.gradient_norm = gradient_norm() / static_cast<double>(loss_scale_.value());
  const bool finite = std::isfinite(result.gradient_norm);
  if (!finite && options_.precision != Type::Float16)
    throw Error(
        fmt::format("step {}: the gradients are not finite (norm {}): choose a smaller --rate, or look at "
                    "the data",
                    step, result.gradient_norm));
  const float unscale = 1.0F / loss_scale_.value();
  result.skipped = !loss_scale_.accept(finite);
  if (result.skipped) {
    states_.forget_gradients();
    return;
  }
  const float factor = unscale * clip_factor(options_.learning, result.gradient_norm);
  timeline_.during(Activity::Update, [&] {
    if (options_.timed_block == 0) states_.update(adamw_of(options_.learning, result.rate, updates_, factor));
    states_.publish();
  });
  ++updates_;
}

bool Worker::represents(const ParameterSpec& parameter) const {
  // What every rank of the tensor group has in full counts once, and so does a tied head's table.
  const bool is_copy =
      grid_.pipeline.rank() > 0 && parameter.first == model_.front().parameters[embedding::Tokens].first;
  return !is_copy && (parameter.split != Split::None || grid_.tensor.rank() == 0);
}

// The tokens' table of a tied head lies on the first and on the last stage, and each has made a part of its
// gradient: the sum is everyone's.
void Worker::sum_tied_gradients() {
  if (!options_.shape.tied || grid_.ends.size() == 1) return;
  const bool is_first = grid_.pipeline.rank() == 0;
  const std::size_t unit = is_first ? 0 : layouts_.size() - 1;
  const LocalParameter& table = layouts_[unit][is_first ? std::size_t{embedding::Tokens} : head::Weight];
  grid_.ends.all_reduce(options_.precision,
                        advance(states_.gradient(unit).data, options_.precision, table.offset),
                        table.count());
  states_.done(unit, true);
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
    if (represents(*owned.parameter.spec))
      sum += sum_of_squares(options_.precision, owned.gradient, owned.count);
  });
  grid_.tensor.all_reduce(&sum, 1);
  if (states_.stage() != ZeroStage::None) grid_.data.all_reduce(&sum, 1);
  grid_.pipeline.all_reduce(&sum, 1);
  return std::sqrt(sum);
}

double Worker::held_out_loss(Index samples) {
  const Index context = options_.shape.context, ranks = grid_.data.size(), rank = grid_.data.rank();
  samples = std::min(samples, corpus_.held_out_samples());
  // One by one, so that the same samples count in every layout; all data-parallel ranks take as many, for
  // stage 3 gathers parameters in each.
  const Stage::Work work{.count = (samples + ranks - 1) / ranks,
                         .batch =
                             [&](Index m) {
                               MicroBatch batch{.first_sample = 0, .tokens = {}, .targets = {}};
                               append(batch, corpus_.held_out(std::min(m * ranks + rank, samples - 1)),
                                      context);
                               return batch;
                             },
                         .pass = [&](const MicroBatch&) { return pass(1, 0, 0, false); }};
  const std::vector<double> losses = stage_.evaluate(work);
  double loss = 0;
  for (Index m = 0; m < work.count; ++m)
    if (m * ranks + rank < samples) loss += losses[static_cast<std::size_t>(m)];
  grid_.pipeline.all_reduce(&loss, 1);
  grid_.data.all_reduce(&loss, 1);
  return loss / static_cast<double>(samples * context);
}

void Worker::for_each_gradient(const std::function<void(Index, const void*, Index)>& f) {
  states_.for_each_owned_run([&](const ModelStates::Owned& owned, Index number, Index place, Index length) {
    f(number, advance(owned.gradient, options_.precision, place), length);
  });
}

std::string Worker::save(const CheckpointWriter& writer, RankGroup& job, Index steps) {
  CheckpointInfo info = checkpoint_info(options_, steps, updates_);
  info.loss_scale = loss_scale_.value();
  info.good_steps = loss_scale_.good_steps();
  // Without shards every data-parallel rank owns everything.
  const bool writes = states_.stage() != ZeroStage::None || grid_.data.rank() == 0;
  return writer.write(job, info, [&](StateKind kind, const CheckpointWriter::Emit& emit) {
    states_.for_each_owned_run([&](const ModelStates::Owned& owned, Index number, Index place, Index length) {
      if (writes && represents(*owned.parameter.spec)) emit(number, owned.state(kind) + place, length);
    });
  });
}

}  // namespace trainer
