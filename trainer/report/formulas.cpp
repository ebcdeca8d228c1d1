// SPDX-License-Identifier: BSD-3-Clause
#include "report/formulas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "parallel/chunk.hpp"

namespace trainer {

namespace {

// A rank's part of the model, in elements.
struct Part {
  double parameters = 0;
  double embedding = 0;  // of these; 0 where another stage has it
  double norms = 0;
  Index blocks = 0;
  bool first = false, last = false;

  Part(const Options& o, RankPlace place) {
    const std::vector<UnitSpec> model = model_units(o.shape);
    const PipelineShape& pipeline = o.grid.pipeline;
    for (int c = 0; c < pipeline.chunks; ++c) {
      const ChunkShape chunk =
          chunk_shape(o.shape, pipeline.stages * pipeline.chunks, c * pipeline.stages + place.stage);
      blocks += chunk.blocks.count;
      first |= chunk.first;
      last |= chunk.last;
      for (const UnitSpec& unit : chunk_units(model, o.shape, chunk)) {
        const UnitLayout layout(unit, {0, o.grid.tensor});
        parameters += static_cast<double>(layout.count());
        for (const LocalParameter& parameter : layout.parameters())
          if (parameter.spec->is_norm) norms += static_cast<double>(parameter.count());
      }
    }
    if (first) embedding = static_cast<double>(UnitLayout(model.front(), {0, o.grid.tensor}).count());
  }
};

// Most passes of micro-batches through one chunk that the schedule has stored at a time.
Index stored_passes(const Options& o, RankPlace place) {
  Index stored = 0, most = 0;
  for (const PipelineAction& action : training_actions(o.grid.pipeline, place.stage, o.micro_batches())) {
    stored += action.backward ? -1 : 1;
    most = std::max(most, stored);
  }
  return most;
}

// Bytes that a micro-batch leaves in one block and in the head for their backward passes: see BlockState.
struct Stored {
  double block, block_input, head;

  explicit Stored(const Options& o) {
    const double size = static_cast<double>(size_of(o.precision)), t = o.grid.tensor;
    const auto width = static_cast<double>(o.shape.width), context = static_cast<double>(o.shape.context);
    const double tokens = static_cast<double>(o.samples_at_once()) * context;
    const double own = o.sequence_parallel ? tokens / t : tokens;
    const double norm = own * (width * size + 2 * sizeof(float));
    block_input = own * width * size;
    const double middle = own * width * size;
    const double qkv_mixed_up = tokens * (3 + 1 + 4) * width / t * size;
    const double probabilities = tokens * static_cast<double>(o.shape.heads) / t * context * size;
    block = block_input + 2 * norm + middle + qkv_mixed_up + probabilities;
    head = own * width * size + norm + tokens * static_cast<double>(o.shape.vocabulary) / t * size;
  }
};

double expected_activations(const Options& o, RankPlace place, const Part& part) {
  if (o.timed_block > 0) return NAN;
  const Stored stored(o);
  const auto passes = static_cast<double>(stored_passes(o, place));
  const double blocks = passes * static_cast<double>(part.blocks) / o.grid.pipeline.chunks;
  const double heads = !part.last ? 0 : o.grid.pipeline.schedule == PipelineSchedule::GPipe ? passes : 1;
  if (!o.recompute) return blocks * stored.block + heads * stored.head;
  // Beside the blocks' inputs one block has all of it, before which the last head has gone.
  const double inputs = blocks * stored.block_input, again = stored.block - stored.block_input;
  return heads == 0 ? inputs + again : inputs + (heads - 1) * stored.head + std::max(stored.head, again);
}

std::array<double, kUseCount> server_memory(const Options& o, const Part& part) {
  const double shard = part.parameters / o.servers, size = static_cast<double>(size_of(o.precision));
  return {size * shard, size * shard, (o.precision == Type::Float32 ? 8 : 12) * shard, NAN, NAN};
}

class TrafficFormulas {
 public:
  TrafficFormulas(const Options& options, RankPlace place)
      : o_(options),
        part_(options, place),
        place_(place),
        size_(static_cast<double>(size_of(options.precision))),
        micro_batches_(static_cast<double>(options.micro_batches())) {}

  std::vector<ExpectedTraffic> all() {
    if (place_.serves) {
      serve();
      return std::move(list_);
    }
    if (o_.servers > 0)
      push();
    else if (o_.grid.data > 1)
      reduce_gradients();
    if (o_.grid.tensor > 1) share_layers();
    if (o_.grid.pipeline.stages > 1) pass_on();
    return std::move(list_);
  }

 private:
  static std::string names(double times, const char* what) {
    return times == 1 ? what : fmt::format("{:g} x {}", times, what);
  }
  void add(const char* group, Collective collective, double bytes, std::string what) {
    if (bytes > 0) list_.push_back({group, collective, bytes, std::move(what)});
  }

  void serve() {
    // Each worker gets this server's weights once for each of its gradients.
    const double headers = 2.0 * sizeof(float) * o_.grid.data;
    add("workers", Collective::SendReceive, o_.grid.data * part_.parameters / o_.servers * size_ + headers,
        o_.server_mode == ServerMode::Asynchronous ? "workers / servers x weights, and once more at the end"
                                                   : "workers / servers x weights");
  }

  void push() {
    const double headers = o_.server_mode == ServerMode::Asynchronous ? 2.0 * sizeof(float) * o_.servers : 0;
    add("servers", Collective::SendReceive, part_.parameters * size_ + headers, "gradients");
  }

  void reduce_gradients() {
    const double n = o_.grid.data, share = (n - 1) / n, whole = part_.parameters * size_;
    const double reductions = o_.zero >= ZeroStage::Gradients ? micro_batches_ : 1;
    if (o_.zero == ZeroStage::None) {
      add("data", Collective::AllReduce, 2 * share * whole, "2 (n-1)/n x gradients");
      return;
    }
    add("data", Collective::ReduceScatter, reductions * share * whole,
        names(reductions, "(n-1)/n x gradients"));
    if (o_.zero != ZeroStage::Parameters) {
      add("data", Collective::AllGather, share * whole, "(n-1)/n x weights");
      return;
    }
    // Forward and backward, but the embedding's backward pass needs no weights; a tied head needs it for
    // both.
    const double embedding = (o_.shape.tied ? 1 : -1) * part_.embedding * size_;
    add("data (gather)", Collective::AllGather, micro_batches_ * share * (2 * whole + embedding),
        names(micro_batches_,
              o_.shape.tied ? "(n-1)/n x (2 x weights + embedding)" : "(n-1)/n x (2 x weights - embedding)"));
  }

  // A micro-batch's activations between layers: batch x context x width.
  double activations() const {
    return static_cast<double>(o_.samples_at_once() * o_.shape.context * o_.shape.width) * size_;
  }

  void share_layers() {
    const double t = o_.grid.tensor, share = (t - 1) / t, blocks = static_cast<double>(part_.blocks);
    const bool timed = o_.timed_block > 0;
    const double first = part_.first && !timed, last = part_.last && !timed;
    const double again = o_.recompute && !timed;
    const double unit = micro_batches_ * share * activations();
    const double tokens = static_cast<double>(o_.samples_at_once() * o_.shape.context);
    // Maxima, sums of exponentials, and the targets' logits, as floats.
    const double cross_entropy = last * micro_batches_ * 2 * share * tokens * 3 * sizeof(float);
    if (!o_.sequence_parallel) {
      add("tensor", Collective::AllReduce, 2 * unit * ((4 + again) * blocks + first + last) + cross_entropy,
          fmt::format("2 (t-1)/t x ({} a layer{}) x batch x context x width", 4 + again,
                      first + last > 0 ? fmt::format(" + {:g}", first + last) : ""));
      return;
    }
    // The backward pass gathers the inputs of both halves' first products again.
    const double gathers = (timed ? 4 : 6) + 2 * again, scatters = 4 + again;
    add("tensor", Collective::AllGather, unit * (gathers * blocks + first + 2 * last),
        fmt::format("(t-1)/t x ({:g} a layer{}) x batch x context x width", gathers,
                    first + last > 0 ? fmt::format(" + {:g}", first + 2 * last) : ""));
    add("tensor", Collective::ReduceScatter, unit * (scatters * blocks + first + last),
        fmt::format("(t-1)/t x ({:g} a layer{}) x batch x context x width", scatters,
                    first + last > 0 ? fmt::format(" + {:g}", first + last) : ""));
    const double norms = part_.norms * size_ / (o_.zero == ZeroStage::None ? 1 : o_.grid.data);
    add("tensor", Collective::AllReduce, 2 * share * norms + cross_entropy,
        "2 (t-1)/t x (gradients of norms + 12 bytes a token)");
  }

  void pass_on() {
    const PipelineShape& pipeline = o_.grid.pipeline;
    const double messages = micro_batches_ * pipeline.chunks;
    const double own = activations() / (o_.sequence_parallel ? o_.grid.tensor : 1);
    auto pass = [&](const char* group, bool ends) {
      const double count = messages - (ends ? micro_batches_ : 0);
      add(group, Collective::SendReceive, count * own, fmt::format("{:g} x batch x context x width", count));
    };
    pass("next stage", part_.last);
    pass("previous stage", part_.first);
    if (o_.shape.tied && (part_.first || part_.last))
      add("ends", Collective::AllReduce,
          static_cast<double>(o_.shape.vocabulary * o_.shape.width) / o_.grid.tensor * size_,
          "gradient of the tied table");
  }

  const Options& o_;
  Part part_;
  RankPlace place_;
  double size_, micro_batches_;
  std::vector<ExpectedTraffic> list_;
};

}  // namespace

std::array<double, kUseCount> expected_memory(const Options& o, RankPlace place) {
  const Part part(o, place);
  if (place.serves) return server_memory(o, part);
  const double size = static_cast<double>(size_of(o.precision));
  auto shared = [&](ZeroStage from, double bytes) {
    return bytes * part.parameters / (o.zero >= from ? o.grid.data : 1);
  };
  const double optimizer = o.servers > 0 ? 0 : o.precision == Type::Float32 ? 8 : 12;
  return {shared(ZeroStage::Parameters, size), shared(ZeroStage::Gradients, size),
          shared(ZeroStage::Optimizer, optimizer), expected_activations(o, place, part), NAN};
}

std::vector<ExpectedTraffic> expected_traffic(const Options& options, RankPlace place) {
  return TrafficFormulas(options, place).all();
}

}  // namespace trainer
