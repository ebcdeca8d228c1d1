// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <mutex>

#include "model/random.hpp"
#include "support/catch.hpp"
#include "support/ranks.hpp"
#include "trainer/refusal.hpp"
#include "worker.hpp"

namespace {

using namespace trainer;

// Text in which neighbours depend on each other.
std::string made_up_text(std::size_t length) {
  std::string text;
  for (std::uint64_t i = 0; text.size() < length; ++i) {
    const char* words[] = {"all ", "together ", "now, ", "one ", "by ", "one.\n"};
    text += words[philox(7, 7, i)[0] % 6];
  }
  return text;
}

Options small_options() {
  Options options;
  options.data = {"made up"};
  options.shape = {.layers = 2, .width = 24, .heads = 2, .context = 12};
  options.batch = 4;
  options.bucket_bytes = 1 << 14;
  return options;
}

// One step on every rank, then the checks of one rank after the other.
void after_a_step(const Options& options, const std::function<void(Worker&)>& checks) {
  check(options, options.grid.ranks());
  Corpus corpus(made_up_text(4000), *byte_tokenizer(), options.shape.context, options.held_out);
  support::LocalRanks ranks(options.grid.ranks());
  std::mutex mutex;
  ranks.run([&](int rank, ncclComm_t) {
    Worker worker(options, corpus,
                  tutti::Communicator(std::exchange(ranks.comms[static_cast<std::size_t>(rank)], nullptr)));
    worker.step(0);
    std::lock_guard lock(mutex);
    checks(worker);
  });
}

}  // namespace

TEST_CASE("the gradient of every parameter is the slope of the loss") {
  const bool tied = GENERATE(true, false);
  const Index context = GENERATE(12, 140);  // attention takes 128 queries at a time
  CAPTURE(tied, context);
  ModelShape shape{.layers = 2, .width = 24, .heads = 2, .context = context, .vocabulary = 32, .tied = tied};
  Memory memory;
  Products products(Type::Float32);
  TensorGroup alone;
  std::vector<UnitSpec> units = model_units(shape);
  std::vector<UnitLayout> layouts = layouts_of(units, {});
  RankGroup one, other;
  ModelStates states(memory, Type::Float32, layouts, {one, other}, ZeroStage::None, 1 << 20);
  states.start(3);
  // Start values far enough from the fixed ones that norms and biases matter.
  std::uint64_t number = 0;
  states.for_each_owned([&](const ModelStates::Owned& owned) {
    for (Index i = 0; i < owned.count; ++i) owned.weights[i] += 0.2F * normal(5, 1, number++);
  });
  ModelChunk chunk(shape, chunk_shape(shape, 1, 0), layouts, 0, states);
  Pass pass{.shape = shape, .memory = memory, .products = products, .tensor = alone, .samples = 3};
  MicroBatch batch{.first_sample = 0, .tokens = {}, .targets = {}};
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(pass.tokens()); ++i) {
    batch.tokens.push_back(philox(9, 0, i)[0] % 32);
    batch.targets.push_back(philox(9, 1, i)[0] % 32);
  }
  auto forward = [&] {
    double loss = 0;
    chunk.forward(pass, batch, {}, 1.0F, loss);
    return loss;
  };
  forward();
  chunk.backward(pass, batch, {}, true);
  states.wait_for_gradients();
  pass.training = false;

  int parameters = 0;
  states.for_each_owned([&](const ModelStates::Owned& owned) {
    // Along the gradient itself: the slope is its norm.
    const auto* gradient = static_cast<const float*>(owned.gradient);
    double norm = 0;
    for (Index i = 0; i < owned.count; ++i) norm += double{gradient[i]} * double{gradient[i]};
    norm = std::sqrt(norm);
    auto loss_at = [&](double distance) {
      std::vector<float> kept(owned.weights, owned.weights + owned.count);
      for (Index i = 0; i < owned.count; ++i)
        owned.weights[i] += static_cast<float>(distance * double{gradient[i]} / norm);
      double loss = forward();
      std::copy(kept.begin(), kept.end(), owned.weights);
      return loss;
    };
    constexpr double kDistance = 0.01;
    double slope = (loss_at(kDistance) - loss_at(-kDistance)) / (2 * kDistance);
    CAPTURE(owned.parameter.spec->name, norm, slope);
    CHECK(std::abs(slope / norm - 1) < 0.01);
    ++parameters;
  });
  CHECK(parameters == 2 + 2 * 12 + (tied ? 2 : 3));
}

TEST_CASE("model states take the bytes of the ZeRO paper") {
  const auto type = GENERATE(Type::Float32, Type::Bfloat16);
  const auto stage =
      GENERATE(ZeroStage::None, ZeroStage::Optimizer, ZeroStage::Gradients, ZeroStage::Parameters);
  const int ranks = 4;
  CAPTURE(name_of(type), static_cast<int>(stage));
  Options options = small_options();
  options.precision = type;
  options.zero = stage;
  options.grid.data = ranks;
  after_a_step(options, [&](Worker& worker) {
    const Index count = worker.states().padded_count();
    CHECK(worker.states().count() == parameter_count(worker.units()));
    CHECK(count - worker.states().count() < ranks * 16 * Index(worker.units().size()));
    // fp32 has its master weights in the parameters themselves.
    const Index parameter = size_of(type), optimizer = type == Type::Float32 ? 8 : 12;
    auto shared = [&](ZeroStage from, Index bytes) { return bytes * count / (stage >= from ? ranks : 1); };
    CHECK(worker.memory().bytes(Use::Parameters) == shared(ZeroStage::Parameters, parameter));
    CHECK(worker.memory().bytes(Use::Gradients) == shared(ZeroStage::Gradients, parameter));
    CHECK(worker.memory().bytes(Use::OptimizerStates) == shared(ZeroStage::Optimizer, optimizer));
    CHECK(worker.memory().bytes(Use::Activations) == 0);
  });
}

TEST_CASE("a step of data parallelism sends the bytes of the formulas") {
  const auto stage =
      GENERATE(ZeroStage::None, ZeroStage::Optimizer, ZeroStage::Gradients, ZeroStage::Parameters);
  CAPTURE(static_cast<int>(stage));
  Options options = small_options();
  options.zero = stage;
  options.shape.tied = false;  // a tied matrix is gathered for the head once more
  options.grid.data = 4;
  after_a_step(options, [&](Worker& worker) {
    const double once = 3.0 / 4.0 * static_cast<double>(4 * worker.states().padded_count());
    const double embedding = std::ceil(static_cast<double>(24 * (256 + 12)) / 64) * 64;  // with its padding
    const Traffic &reduced = worker.grid().data.traffic(), &gathered = worker.grid().data_gather.traffic();
    // One number each for the loss and, with shards, the norm.
    const double scalars = 2 * 3.0 / 4.0 * 8 * (stage == ZeroStage::None ? 1 : 2);
    CHECK(reduced[Collective::Numbers].sent == scalars);
    switch (stage) {
      case ZeroStage::None:
        CHECK(reduced[Collective::AllReduce].sent == 2 * once);
        break;
      case ZeroStage::Optimizer:
      case ZeroStage::Gradients:
        CHECK(reduced[Collective::ReduceScatter].sent == once);
        CHECK(reduced[Collective::AllGather].sent == once);
        break;
      case ZeroStage::Parameters:
        CHECK(reduced[Collective::ReduceScatter].sent == once);
        // Forward and backward; the embedding's backward pass needs no parameters.
        CHECK(gathered[Collective::AllGather].sent == 2 * once - 3.0 / 4.0 * 4 * embedding);
        break;
    }
  });
}

TEST_CASE("tensor parallelism sends four all-reduces of the activations a layer") {
  const bool sequence_parallel = GENERATE(false, true);
  Options options = small_options();
  options.grid.tensor = 2;
  options.sequence_parallel = sequence_parallel;
  auto sent = [&](Index layers) {
    double bytes = 0;
    options.shape.layers = layers;
    after_a_step(options, [&](Worker& worker) {
      const Traffic& traffic = worker.grid().tensor.traffic();
      bytes = sequence_parallel
                  ? traffic[Collective::AllGather].sent + traffic[Collective::ReduceScatter].sent
                  : traffic[Collective::AllReduce].sent;
    });
    return bytes;
  };
  const double activations =
      static_cast<double>(4 * options.batch * options.shape.context * options.shape.width);
  const double all_reduce = 2 * 1.0 / 2.0 * activations;
  // With sequence parallelism the two inputs of products are gathered once more in the backward pass.
  CHECK(sent(3) - sent(2) == 4 * all_reduce + (sequence_parallel ? 2 * all_reduce / 2 : 0));
}

TEST_CASE(
    "a stage stores as many micro-batches as its schedule says, and sends each to its neighbours once") {
  const auto schedule = GENERATE(PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward);
  const double timed_block = GENERATE(0.0, 1e-4);
  Options options = small_options();
  options.timed_block = timed_block;
  options.grid.pipeline = {schedule, 2, 1};
  options.batch = 6;
  options.micro_batch = 1;
  after_a_step(options, [&](Worker& worker) {
    const bool first = worker.grid().pipeline.rank() == 0;
    CHECK(worker.stage().peak_stored() == (schedule == PipelineSchedule::GPipe ? 6 : first ? 2 : 1));
    CHECK(worker.memory().bytes(Use::Activations) == 0);
    const double activations =
        static_cast<double>(4 * options.batch * options.shape.context * options.shape.width);
    const RankGroup& link = first ? worker.grid().activations_out : worker.grid().gradients_out;
    CHECK(link.traffic()[Collective::SendReceive].sent == activations);
  });
}

TEST_CASE("parameter servers hold and send the bytes of the formulas, and apply every gradient") {
  const auto mode = GENERATE(ServerMode::Synchronous, ServerMode::Asynchronous);
  const auto type = GENERATE(Type::Float32, Type::Bfloat16);
  const int servers = GENERATE(1, 2);
  CAPTURE(static_cast<int>(mode), name_of(type), servers);
  Options options = small_options();
  options.server_mode = mode;
  options.servers = servers;
  options.precision = type;
  options.grid.data = 2;
  options.steps = 3;
  check(options, options.ranks());
  Corpus corpus(made_up_text(4000), *byte_tokenizer(), options.shape.context, options.held_out);
  support::LocalRanks ranks(options.ranks());
  std::mutex mutex;
  ranks.run([&](int rank, ncclComm_t) {
    tutti::Communicator world(std::exchange(ranks.comms[static_cast<std::size_t>(rank)], nullptr));
    Timeline timeline;
    ServedWorld served(2, servers, RankGroup(std::move(world), "world", &timeline), timeline);
    const bool async = mode == ServerMode::Asynchronous;
    const Index size = size_of(type), header = 2 * 4;
    auto sent = [](const std::vector<RankGroup>& ways) {
      double bytes = 0;
      for (const RankGroup& way : ways) bytes += way.traffic()[Collective::SendReceive].sent;
      return bytes;
    };
    if (served.is_server()) {
      const std::vector<UnitSpec> units = model_units(options.shape);
      const std::vector<UnitLayout> layouts = layouts_of(units, {});
      ParameterServer server(served, options.learning, options.steps, type, layouts, timeline);
      server.start(options.seed);
      if (async)
        server.serve();
      else
        for (Index step = 0; step < options.steps; ++step) server.step(step);
      std::lock_guard lock(mutex);
      const Index shard = server.states().padded_count() / servers;
      CHECK(server.updates() == options.steps * (async ? 2 : 1));
      double applied = 0;
      for (double count : server.staleness()) applied += count;
      CHECK(applied == (async ? 6 : 0));
      CHECK(server.memory().bytes(Use::Parameters) == size * shard);
      CHECK(server.memory().bytes(Use::Gradients) == size * shard);
      CHECK(server.memory().bytes(Use::OptimizerStates) == (type == Type::Float32 ? 8 : 12) * shard);
      // To both workers; asynchronous ones pull once more at the end.
      const Index pulls = 2 * (options.steps + (async ? 1 : 0));
      CHECK(sent(served.weights) == static_cast<double>(pulls * (size * shard + header)));
      return;
    }
    Worker worker(options, corpus, served);
    for (Index step = 0; step < options.steps; ++step) worker.step(step);
    worker.finish();
    std::lock_guard lock(mutex);
    const Index count = worker.states().padded_count();
    CHECK(worker.memory().bytes(Use::Parameters) == size * count);
    CHECK(worker.memory().bytes(Use::Gradients) == size * count);
    CHECK(worker.memory().bytes(Use::OptimizerStates) == 0);
    const Index headers = async ? (options.steps + 1) * header * servers : 0;
    CHECK(sent(served.gradients) == static_cast<double>(options.steps * size * count + headers));
  });
}

TEST_CASE("what cannot be trained is refused with a sentence that says why") {
  auto refused = [](const char* sentence, int ranks, const std::function<void(Options&)>& change) {
    Options options = small_options();
    change(options);
    CHECK(says(refusal([&] { check(options, ranks); }), {sentence}));
  };
  refused("makes 6 ranks, but this job has 4", 4, [](Options& o) { o.grid = {.data = 3, .tensor = 2}; });
  refused("--heads 2 cannot be divided among --tp 4", 4, [](Options& o) { o.grid.tensor = 4; });
  refused("--batch 4 cannot be divided among --dp 3", 3, [](Options& o) { o.grid.data = 3; });
  refused("--width 25 cannot be divided among --heads 2", 1, [](Options& o) { o.shape.width = 25; });
  refused("cannot be divided among --micro-batch 3", 1, [](Options& o) { o.micro_batch = 3; });
  refused("--held-out is 1,", 1, [](Options& o) { o.held_out = 1; });
  auto pipeline = [](PipelineSchedule schedule, int stages, int chunks) {
    return [=](Options& o) { o.grid.pipeline = {schedule, stages, chunks}, o.micro_batch = 1; };
  };
  refused("--layers 2 are fewer than --pp 4", 4, pipeline(PipelineSchedule::GPipe, 4, 1));
  refused("--layers 2 are fewer than --pp 2 x --chunks 2", 2, pipeline(PipelineSchedule::Interleaved, 2, 2));
  refused("--chunks of at least 2 (it is 1)", 2, pipeline(PipelineSchedule::Interleaved, 2, 1));
  refused("--chunks 2 needs --schedule interleaved", 2, pipeline(PipelineSchedule::GPipe, 2, 2));
  refused("in groups of --pp 2, but a step has 1", 2, [](Options& o) {
    o.shape.layers = 4;
    o.grid.pipeline = {PipelineSchedule::Interleaved, 2, 2};
  });
  refused("choose --zero 0 or 1", 2, [](Options& o) {
    o.grid.pipeline.stages = 2;
    o.zero = ZeroStage::Gradients;
  });
  auto served = [](int servers, ServerMode mode) {
    return [=](Options& o) { o.servers = servers, o.server_mode = mode; };
  };
  refused("--ps needs --servers of at least 1", 1, served(0, ServerMode::Synchronous));
  refused("--servers 2 needs --ps", 3, served(2, ServerMode::None));
  refused("--servers -1 needs --ps", 1, served(-1, ServerMode::None));
  refused("and --servers 2 makes 3 ranks, but this job has 1", 1, served(2, ServerMode::Synchronous));
  refused("leave out --tp", 3, [](Options& o) {
    o.servers = 1, o.server_mode = ServerMode::Synchronous;
    o.grid.tensor = 2;
  });
  refused("--layers is 0", 1, [](Options& o) { o.shape.layers = 0; });

  CHECK(says(refusal([] { read_text({"/nowhere/at/all"}); }),
             {"cannot read --data /nowhere/at/all: No such file"}));
  CHECK(says(refusal([] { read_text({"/"}); }), {"is a folder"}));
  CHECK(says(refusal([] { read_text({}); }), {"no text to train on"}));
  CHECK(says(refusal([] { read_text({"/dev/null"}); }), {"is empty"}));
  CHECK(says(refusal([] { Corpus("short", *byte_tokenizer(), 12, 0.5); }),
             {"a sample of --context 12 needs 13"}));
}

TEST_CASE("ranks that were started with different options all say so") {
  Options one = small_options(), other = small_options();
  one.grid.data = other.grid.data = 2;
  other.steps = 7;
  Corpus corpus(made_up_text(4000), *byte_tokenizer(), one.shape.context, one.held_out);
  support::LocalRanks ranks(2);
  std::string sentences[2];
  ranks.run([&](int rank, ncclComm_t) {
    auto place = static_cast<std::size_t>(rank);
    tutti::Communicator world(std::exchange(ranks.comms[place], nullptr));
    sentences[place] = refusal([&] { Worker(rank == 0 ? one : other, corpus, std::move(world)); });
  });
  for (const std::string& sentence : sentences)
    CHECK(says(sentence, {"steps 7", "steps 100", "different options"}));
}
