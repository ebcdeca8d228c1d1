// SPDX-License-Identifier: BSD-3-Clause
#include "app/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "checkpoint/checkpoint.hpp"
#include "data/tokenizer.hpp"
#include "model/random.hpp"
#include "parallel/chunk.hpp"

namespace trainer {

namespace {

void check(const GenerateOptions& o) {
  if (o.prompt.empty()) throw Error("--prompt is empty, but the model needs a token to go on from");
  if (o.tokens < 0) throw Error(fmt::format("--tokens is {}, but must be at least 0", o.tokens));
  if (!(o.temperature >= 0 && o.temperature <= 100))
    throw Error(fmt::format("--temperature is {}, but must lie between 0 and 100", o.temperature));
  if (o.top_k < 0) throw Error(fmt::format("--top-k is {}, but must be at least 0", o.top_k));
}

// A trained model on one rank.
class Model {
 public:
  explicit Model(const Checkpoint& checkpoint)
      : shape_(checkpoint.info().shape),
        units_(model_units(shape_)),
        layouts_(layouts_of(units_, {})),
        products_(Type::Float32),
        states_(memory_, Type::Float32, layouts_, {group_, group_}, ZeroStage::None, 0),
        chunk_(shape_, chunk_shape(shape_, 1, 0), layouts_, 0, states_) {
    states_.load(checkpoint.source());
  }

  // Logits of what follows the last of the tokens, of which no more than a context count.
  std::vector<float> next(const std::vector<Index>& tokens) {
    const Index seen = std::min(static_cast<Index>(tokens.size()), shape_.context);
    // Attention looks back only, so that what stands behind does not matter. Few lengths, for a product is
    // prepared anew for each.
    constexpr Index kStep = 64;
    ModelShape shape = shape_;
    shape.context = std::min((seen + kStep - 1) / kStep * kStep, shape_.context);
    MicroBatch batch{.first_sample = 0, .tokens = {tokens.end() - seen, tokens.end()}, .targets = {}};
    batch.tokens.resize(static_cast<std::size_t>(shape.context));
    const Pass pass{.shape = shape,
                    .memory = memory_,
                    .products = products_,
                    .tensor = alone_,
                    .samples = 1,
                    .training = false};
    const Array logits = chunk_.logits(pass, batch);
    const float* last = logits.floats() + (seen - 1) * shape.vocabulary;
    return {last, last + shape.vocabulary};
  }

 private:
  ModelShape shape_;
  std::vector<UnitSpec> units_;
  std::vector<UnitLayout> layouts_;
  Memory memory_;
  Products products_;
  TensorGroup alone_;
  RankGroup group_;
  ModelStates states_;
  ModelChunk chunk_;
};

Index choose(const std::vector<float>& logits, const GenerateOptions& options, double random) {
  std::vector<Index> order(logits.size());
  std::iota(order.begin(), order.end(), Index{0});
  auto logit = [&](Index token) { return static_cast<double>(logits[static_cast<std::size_t>(token)]); };
  std::sort(order.begin(), order.end(), [&](Index a, Index b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return order.front();
  if (options.top_k > 0) order.resize(std::min(order.size(), static_cast<std::size_t>(options.top_k)));
  std::vector<double> sums;
  for (Index token : order)
    sums.push_back((sums.empty() ? 0 : sums.back()) +
                   std::exp((logit(token) - logit(order.front())) / options.temperature));
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), random * sums.back());
  return order[std::min(static_cast<std::size_t>(chosen - sums.begin()), order.size() - 1)];
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Checkpoint& checkpoint) {
  const CheckpointInfo& info = checkpoint.info();
  auto tokenizer = tokenizer_from(info.tokenizer, checkpoint.path().string() + "/tokenizer.model");
  if (tokenizer->vocabulary() != info.shape.vocabulary)
    throw Error(
        fmt::format("{} contradicts itself: its model has a vocabulary of {}, its tokenizer one of {}",
                    checkpoint.path().string(), info.shape.vocabulary, tokenizer->vocabulary()));
  return tokenizer;
}

}  // namespace

void generate(const GenerateOptions& options) {
  check(options);
  const Checkpoint checkpoint(options.checkpoint);
  Model model(checkpoint);
  const std::shared_ptr<const Tokenizer> tokenizer = tokenizer_of(checkpoint);
  std::vector<Index> tokens;
  for (Token token : tokenizer->encode(options.prompt)) tokens.push_back(token);
  fmt::print("{}", options.prompt);
  for (Index i = 0; i < options.tokens; ++i) {
    constexpr std::uint64_t kChoices = ~std::uint64_t{1};
    const double random = philox(options.seed, kChoices, static_cast<std::uint64_t>(i))[0] / 4294967296.0;
    tokens.push_back(choose(model.next(tokens), options, random));
    fmt::print("{}", tokenizer->text_of(static_cast<Token>(tokens.back())));
    std::fflush(stdout);
  }
  std::putchar('\n');
  if (std::fflush(stdout) != 0) throw Error("cannot write to standard output");
}

}  // namespace trainer
