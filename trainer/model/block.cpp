// SPDX-License-Identifier: BSD-3-Clause
#include "model/block.hpp"

#include "model/attention.hpp"

namespace trainer {

namespace {

using namespace block;

Index local(const Pass& pass, Index whole) { return whole / pass.tensor.shard().size; }

// The bias of a row-parallel product is added by one rank, so that the sum over ranks has it once.
const void* on_first(const Pass& pass, const void* bias) {
  return pass.tensor.shard().rank == 0 ? bias : nullptr;
}

}  // namespace

void Block::attention_forward(const Pass& pass, const void* weights, BlockState& state) const {
  const Index tokens = pass.tokens(), c = pass.shape.width, own = local(pass, c);
  state.norm1 = normalize(pass, state.input, at(weights, pass, Norm1Weight), at(weights, pass, Norm1Bias));
  Array room;
  const Array& x = pass.tensor.enter(state.norm1.output, room);
  state.qkv = pass.activation(tokens * 3 * own);
  linear(pass.products, x.data(), at(weights, pass, QkvWeight), at(weights, pass, QkvBias), state.qkv.data(),
         tokens, c, 3 * own);
  state.probabilities = pass.activation(tokens * local(pass, pass.shape.heads) * pass.shape.context);
  state.mixed = pass.activation(tokens * own);
  attend(pass, state.qkv, state.probabilities, state.mixed);

  Array projected = pass.activation(tokens * c);
  linear(pass.products, state.mixed.data(), at(weights, pass, ProjectionWeight),
         on_first(pass, at(weights, pass, ProjectionBias)), projected.data(), tokens, own, c);
  state.middle = pass.tensor.leave(std::move(projected));
  dropout(pass, layer_, 0, state.middle, &state.input, state.middle);
}

void Block::mlp_up(const Pass& pass, const void* weights, BlockState& state) const {
  const Index tokens = pass.tokens(), c = pass.shape.width, own = local(pass, pass.shape.hidden());
  state.norm2 = normalize(pass, state.middle, at(weights, pass, Norm2Weight), at(weights, pass, Norm2Bias));
  Array room;
  const Array& x = pass.tensor.enter(state.norm2.output, room);
  state.up = pass.activation(tokens * own);
  // Where no backward pass will ask for what GELU took, it is computed within the product.
  bool fused = !pass.training || pass.recompute;
  linear(pass.products, x.data(), at(weights, pass, UpWeight), at(weights, pass, UpBias), state.up.data(),
         tokens, c, own, fused);
}

Array Block::forward(const Pass& pass, const void* weights, Array input, BlockState& state) const {
  const Index tokens = pass.tokens(), c = pass.shape.width, own = local(pass, pass.shape.hidden());
  const bool keeps = pass.training && !pass.recompute;
  state.input = std::move(input);
  attention_forward(pass, weights, state);
  mlp_up(pass, weights, state);
  Array activated;
  if (keeps) {
    activated = pass.activation(tokens * own);
    gelu(pass.type(), state.up.data(), activated.data(), tokens * own);
  } else {
    activated = std::move(state.up);
  }
  Array down = pass.activation(tokens * c);
  linear(pass.products, activated.data(), at(weights, pass, DownWeight),
         on_first(pass, at(weights, pass, DownBias)), down.data(), tokens, own, c);
  Array output = pass.tensor.leave(std::move(down));
  dropout(pass, layer_, 1, output, &state.middle, output);
  if (!keeps) {
    BlockState only_input;
    if (pass.training) only_input.input = std::move(state.input);
    state = std::move(only_input);
  }
  return output;
}

Array Block::backward(const Pass& pass, const void* weights, UnitGradient gradient, BlockState& state,
                      Array d_output) const {
  if (pass.recompute) {
    Pass again = pass;
    again.recompute = false;
    attention_forward(again, weights, state);
    mlp_up(again, weights, state);
  }
  Array d_middle = mlp_backward(pass, weights, gradient, state, std::move(d_output));
  Array d_input = attention_backward(pass, weights, gradient, state, std::move(d_middle));
  state = BlockState();
  return d_input;
}

const Array& Block::branch_gradient(const Pass& pass, Index site, const Array& d_sum, Array& dropped) const {
  if (pass.shape.dropout == 0) return d_sum;
  dropped = pass.activation(d_sum.count());
  dropout(pass, layer_, site, d_sum, nullptr, dropped);
  return dropped;
}

Array Block::mlp_backward(const Pass& pass, const void* weights, UnitGradient gradient, BlockState& state,
                          Array d_output) const {
  const Index tokens = pass.tokens(), c = pass.shape.width, own = local(pass, pass.shape.hidden());
  auto d_weight = [&](std::size_t place) { return at(gradient.data, pass, place); };
  Array dropped, room;
  const Array& dy = pass.tensor.enter(branch_gradient(pass, 1, d_output, dropped), room);

  // GELU's output is made anew: it costs less than keeping it.
  Array activated = pass.activation(tokens * own);
  gelu(pass.type(), state.up.data(), activated.data(), tokens * own);
  linear_weight_gradient(pass.products, dy.data(), activated.data(), d_weight(DownWeight),
                         gradient.accumulate, tokens, own, c);
  bias_gradient(pass, dy.data(), d_weight(DownBias), gradient.accumulate, tokens, c);
  Array& d_up = activated;
  linear_input_gradient(pass.products, dy.data(), at(weights, pass, DownWeight), d_up.data(), tokens, own, c);
  gelu_backward(pass.type(), d_up.data(), state.up.data(), d_up.data(), tokens * own);

  Array norm_room;
  const Array& x = pass.tensor.enter(state.norm2.output, norm_room);
  linear_weight_gradient(pass.products, d_up.data(), x.data(), d_weight(UpWeight), gradient.accumulate,
                         tokens, c, own);
  bias_gradient(pass, d_up.data(), d_weight(UpBias), gradient.accumulate, tokens, own);
  Array d_norm = pass.activation(tokens * c);
  linear_input_gradient(pass.products, d_up.data(), at(weights, pass, UpWeight), d_norm.data(), tokens, c,
                        own);
  d_norm = pass.tensor.leave(std::move(d_norm));
  normalize_backward(pass, d_norm, state.middle, state.norm2, at(weights, pass, Norm2Weight), d_output,
                     d_weight(Norm2Weight), d_weight(Norm2Bias), gradient.accumulate);
  return d_output;
}

Array Block::attention_backward(const Pass& pass, const void* weights, UnitGradient gradient,
                                BlockState& state, Array d_middle) const {
  const Index tokens = pass.tokens(), c = pass.shape.width, own = local(pass, c);
  auto d_weight = [&](std::size_t place) { return at(gradient.data, pass, place); };
  Array dropped, room;
  const Array& dy = pass.tensor.enter(branch_gradient(pass, 0, d_middle, dropped), room);

  linear_weight_gradient(pass.products, dy.data(), state.mixed.data(), d_weight(ProjectionWeight),
                         gradient.accumulate, tokens, own, c);
  bias_gradient(pass, dy.data(), d_weight(ProjectionBias), gradient.accumulate, tokens, c);
  Array d_mixed = pass.activation(tokens * own);
  linear_input_gradient(pass.products, dy.data(), at(weights, pass, ProjectionWeight), d_mixed.data(), tokens,
                        own, c);
  Array d_qkv = pass.activation(tokens * 3 * own);
  attend_backward(pass, state.qkv, state.probabilities, d_mixed, d_qkv);

  Array norm_room;
  const Array& x = pass.tensor.enter(state.norm1.output, norm_room);
  linear_weight_gradient(pass.products, d_qkv.data(), x.data(), d_weight(QkvWeight), gradient.accumulate,
                         tokens, c, 3 * own);
  bias_gradient(pass, d_qkv.data(), d_weight(QkvBias), gradient.accumulate, tokens, 3 * own);
  Array d_norm = pass.activation(tokens * c);
  linear_input_gradient(pass.products, d_qkv.data(), at(weights, pass, QkvWeight), d_norm.data(), tokens, c,
                        3 * own);
  d_norm = pass.tensor.leave(std::move(d_norm));
  normalize_backward(pass, d_norm, state.input, state.norm1, at(weights, pass, Norm1Weight), d_middle,
                     d_weight(Norm1Weight), d_weight(Norm1Bias), gradient.accumulate);
  return d_middle;
}

}  // namespace trainer
