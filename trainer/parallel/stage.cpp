// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/stage.hpp"

namespace trainer {

Stage::Stage(const ModelShape& shape, const std::vector<UnitLayout>& layouts, ModelStates& states)
    : shape_(shape), layouts_(layouts), states_(states), embedding_(layouts.front()), head_(layouts.back()) {
  for (Index layer = 0; layer < shape.layers; ++layer)
    blocks_.emplace_back(layouts[static_cast<std::size_t>(layer) + 1], layer);
}

const void* Stage::output_weight(const Pass& pass, const void* embedding_weights,
                                 const void* head_weights) const {
  return shape_.tied ? advance(embedding_weights, pass.type(), layouts_.front()[embedding::Tokens].offset)
                     : advance(head_weights, pass.type(), layouts_.back()[head::Weight].offset);
}

void* Stage::output_gradient(const Pass& pass, UnitGradient embedding_gradient,
                             UnitGradient head_gradient) const {
  return shape_.tied
             ? advance(embedding_gradient.data, pass.type(), layouts_.front()[embedding::Tokens].offset)
             : advance(head_gradient.data, pass.type(), layouts_.back()[head::Weight].offset);
}

double Stage::forward(const Pass& pass, const MicroBatch& batch, float loss_scale) {
  Saved saved;
  saved.blocks.resize(blocks_.size());
  const std::size_t head_unit = layouts_.size() - 1;

  const void* weights = states_.acquire(0);
  Array x = embedding_.forward(pass, weights, batch.tokens);
  states_.release(0);
  for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
    weights = states_.acquire(layer + 1);
    states_.prefetch(layer + 2);
    x = blocks_[layer].forward(pass, weights, std::move(x), saved.blocks[layer]);
    states_.release(layer + 1);
  }
  const void* head_weights = states_.acquire(head_unit);
  const void* embedding_weights = shape_.tied ? states_.acquire(0) : nullptr;
  double loss = head_.forward(pass, head_weights, output_weight(pass, embedding_weights, head_weights),
                              std::move(x), batch.targets, loss_scale, saved.head);
  if (shape_.tied) states_.release(0);
  states_.release(head_unit);
  if (pass.training) saved_[batch.first_sample] = std::move(saved);
  return loss;
}

void Stage::backward(const Pass& pass, const MicroBatch& batch, bool last) {
  auto found = saved_.find(batch.first_sample);
  Saved saved = std::move(found->second);
  saved_.erase(found);
  const std::size_t head_unit = layouts_.size() - 1;

  const void* head_weights = states_.acquire(head_unit);
  const void* embedding_weights = shape_.tied ? states_.acquire(0) : nullptr;
  UnitGradient head_gradient = states_.gradient(head_unit);
  UnitGradient embedding_gradient = states_.gradient(0);
  Array gradient =
      head_.backward(pass, head_weights, output_weight(pass, embedding_weights, head_weights), head_gradient,
                     output_gradient(pass, embedding_gradient, head_gradient), saved.head);
  if (shape_.tied) states_.release(0);
  states_.release(head_unit);
  states_.done(head_unit, last);
  for (std::size_t layer = blocks_.size(); layer-- > 0;) {
    const void* weights = states_.acquire(layer + 1);
    if (layer > 0) states_.prefetch(layer);
    gradient = blocks_[layer].backward(pass, weights, states_.gradient(layer + 1), saved.blocks[layer],
                                       std::move(gradient));
    states_.release(layer + 1);
    states_.done(layer + 1, last);
  }
  embedding_.backward(pass, embedding_gradient, embedding_gradient.accumulate || shape_.tied, batch.tokens,
                      std::move(gradient));
  states_.done(0, last);
}

}  // namespace trainer
