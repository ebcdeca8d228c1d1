// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/chunk.hpp"

namespace trainer {

ChunkShape chunk_shape(const ModelShape& shape, int parts, int part) {
  return {blocks_of_part(shape.layers, parts, part), part == 0, part == parts - 1};
}

std::vector<UnitSpec> chunk_units(const std::vector<UnitSpec>& model, const ModelShape& shape,
                                  const ChunkShape& chunk) {
  std::vector<UnitSpec> units;
  if (chunk.first) units.push_back(model.front());
  const auto first_block = model.begin() + 1 + chunk.blocks.first;
  units.insert(units.end(), first_block, first_block + chunk.blocks.count);
  if (chunk.last) {
    units.push_back(model.back());
    if (shape.tied && !chunk.first)
      units.back().parameters.push_back(model.front().parameters[embedding::Tokens]);
  }
  return units;
}

ModelChunk::ModelChunk(const ModelShape& model, ChunkShape shape, std::span<const UnitLayout> layouts,
                       std::size_t first_unit, ModelStates& states)
    : model_(model), shape_(shape), layouts_(layouts), first_unit_(first_unit), states_(states) {
  if (shape.first) embedding_.emplace(layouts.front());
  for (Index i = 0; i < shape.blocks.count; ++i)
    blocks_.emplace_back(layouts[static_cast<std::size_t>(i) + (shape.first ? 1 : 0)],
                         shape.blocks.first + i);
  if (shape.last) head_.emplace(layouts.back());
}

Array ModelChunk::embed_and_run_blocks(const Pass& pass, const MicroBatch& batch, Array x,
                                       std::vector<BlockState>& states) {
  if (embedding_) {
    const void* weights = states_.acquire(embedding_unit());
    x = embedding_->forward(pass, weights, batch.tokens);
    states_.release(embedding_unit());
  }
  states.resize(blocks_.size());
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const void* weights = states_.acquire(block_unit(i));
    if (i + 1 < blocks_.size() || head_) states_.prefetch(block_unit(i + 1));
    x = blocks_[i].forward(pass, weights, std::move(x), states[i]);
    states_.release(block_unit(i));
  }
  return x;
}

template <class F>
auto ModelChunk::with_head(const Pass& pass, F f) {
  const void* weights = states_.acquire(head_unit());
  const void* output_weight = ties_within()
                                  ? advance(states_.acquire(embedding_unit()), pass.type(),
                                            layouts_.front()[embedding::Tokens].offset)
                                  : advance(weights, pass.type(), layouts_.back()[head::Weight].offset);
  auto result = f(weights, output_weight);
  if (ties_within()) states_.release(embedding_unit());
  states_.release(head_unit());
  return result;
}

Array ModelChunk::forward(const Pass& pass, const MicroBatch& batch, Array input, float loss_scale,
                          double& loss) {
  Saved saved;
  Array output = embed_and_run_blocks(pass, batch, std::move(input), saved.blocks);
  if (head_) {
    Array last = std::exchange(output, Array());
    loss += with_head(pass, [&](const void* weights, const void* output_weight) {
      return head_->forward(pass, weights, output_weight, std::move(last), batch.targets, loss_scale,
                            saved.head);
    });
  }
  if (pass.training) saved_[batch.first_sample] = std::move(saved);
  return output;
}

Array ModelChunk::logits(const Pass& pass, const MicroBatch& batch) {
  Saved saved;
  saved.head.input = embed_and_run_blocks(pass, batch, {}, saved.blocks);
  return with_head(pass, [&](const void* weights, const void* output_weight) {
    return head_->logits(pass, weights, output_weight, saved.head);
  });
}

Array ModelChunk::head_backward(const Pass& pass, HeadState& state, bool last) {
  UnitGradient gradient = states_.gradient(head_unit());
  void* d_output_weight = ties_within()
                              ? advance(states_.gradient(embedding_unit()).data, pass.type(),
                                        layouts_.front()[embedding::Tokens].offset)
                              : advance(gradient.data, pass.type(), layouts_.back()[head::Weight].offset);
  Array d_input = with_head(pass, [&](const void* weights, const void* output_weight) {
    return head_->backward(pass, weights, output_weight, gradient, d_output_weight, state);
  });
  if (!(last && ties_across(model_, shape_))) states_.done(head_unit(), last);
  return d_input;
}

Array ModelChunk::backward(const Pass& pass, const MicroBatch& batch, Array gradient, bool last) {
  auto found = saved_.find(batch.first_sample);
  Saved saved = std::move(found->second);
  saved_.erase(found);
  if (head_) gradient = head_backward(pass, saved.head, last);
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const void* weights = states_.acquire(block_unit(i));
    if (i > 0) states_.prefetch(block_unit(i - 1));
    gradient = blocks_[i].backward(pass, weights, states_.gradient(block_unit(i)), saved.blocks[i],
                                   std::move(gradient));
    states_.release(block_unit(i));
    states_.done(block_unit(i), last);
  }
  if (embedding_) {
    UnitGradient own = states_.gradient(embedding_unit());
    embedding_->backward(pass, own, own.accumulate || ties_within(), batch.tokens, std::move(gradient));
    gradient = Array();
    if (!(last && ties_across(model_, shape_))) states_.done(embedding_unit(), last);
  }
  return gradient;
}

}  // namespace trainer
