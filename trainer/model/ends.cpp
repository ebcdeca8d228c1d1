// SPDX-License-Identifier: BSD-3-Clause
#include "model/ends.hpp"

#include <cmath>

namespace trainer {

namespace {

Index local_vocabulary(const Pass& pass) { return pass.shape.vocabulary / pass.tensor.shard().size; }

// Row of the local table, or -1 where another rank has the token.
Index local_row(const Pass& pass, Index token) {
  Index rows = local_vocabulary(pass), row = token - pass.tensor.shard().rank * rows;
  return row >= 0 && row < rows ? row : -1;
}

}  // namespace

Array Embedding::forward(const Pass& pass, const void* weights, std::span<const Index> tokens) const {
  const Index c = pass.shape.width;
  const void* table = advance(weights, pass.type(), (*layout_)[embedding::Tokens].offset);
  const void* positions = advance(weights, pass.type(), (*layout_)[embedding::Positions].offset);
  const bool adds_positions = pass.tensor.shard().rank == 0;
  Array sum = pass.activation(pass.tokens() * c);
  sum.fill_zero();
  for (Index i = 0; i < pass.tokens(); ++i) {
    void* row = sum.at(i * c);
    Index place = local_row(pass, tokens[static_cast<std::size_t>(i)]);
    if (place >= 0) convert(pass.type(), advance(table, pass.type(), place * c), pass.type(), row, c);
    if (adds_positions)
      add(pass.type(), row, advance(positions, pass.type(), i % pass.shape.context * c), row, c);
  }
  Array output = pass.tensor.leave(std::move(sum));
  dropout(pass, pass.shape.layers, 0, output, nullptr, output);
  return output;
}

void Embedding::backward(const Pass& pass, UnitGradient gradient, bool tokens_accumulate,
                         std::span<const Index> tokens, Array d_output) const {
  const Index c = pass.shape.width;
  dropout(pass, pass.shape.layers, 0, d_output, nullptr, d_output);
  Array room;
  const Array& dy = pass.tensor.enter(d_output, room);
  const LocalParameter &table = (*layout_)[embedding::Tokens], &positions = (*layout_)[embedding::Positions];
  // In floats, for a common token's gradient is a sum of many.
  Array table_sums(pass.memory, Use::Workspace, Type::Float32, table.count());
  Array position_sums(pass.memory, Use::Workspace, Type::Float32, positions.count());
  table_sums.fill_zero();
  position_sums.fill_zero();
  for (Index i = 0; i < pass.tokens(); ++i) {
    Index place = local_row(pass, tokens[static_cast<std::size_t>(i)]);
    if (place >= 0) add_column_sums(pass.type(), dy.at(i * c), table_sums.floats() + place * c, 1, c);
    add_column_sums(pass.type(), dy.at(i * c), position_sums.floats() + i % pass.shape.context * c, 1, c);
  }
  store_gradient(pass.type(), table_sums.floats(), advance(gradient.data, pass.type(), table.offset),
                 tokens_accumulate, table.count());
  store_gradient(pass.type(), position_sums.floats(), advance(gradient.data, pass.type(), positions.offset),
                 gradient.accumulate, positions.count());
}

Array Head::logits(const Pass& pass, const void* weights, const void* output_weight, HeadState& state) const {
  const Index tokens = pass.tokens(), v = local_vocabulary(pass);
  state.norm =
      normalize(pass, state.input, advance(weights, pass.type(), (*layout_)[head::NormWeight].offset),
                advance(weights, pass.type(), (*layout_)[head::NormBias].offset));
  Array room;
  const Array& x = pass.tensor.enter(state.norm.output, room);
  Array logits = pass.activation(tokens * v);
  linear(pass.products, x.data(), output_weight, nullptr, logits.data(), tokens, pass.shape.width, v);
  return logits;
}

double Head::forward(const Pass& pass, const void* weights, const void* output_weight, Array input,
                     std::span<const Index> targets, float scale, HeadState& state) const {
  const Index tokens = pass.tokens(), v = local_vocabulary(pass);
  const auto count = static_cast<std::size_t>(tokens);
  state.input = std::move(input);
  Array logits = this->logits(pass, weights, output_weight, state);

  std::vector<Index> rows(count);
  std::vector<float> maxima(count), sums(2 * count);  // of exponentials, then the targets' logits
  for (std::size_t i = 0; i < count; ++i) rows[i] = local_row(pass, targets[i]);
  row_maxima(pass.type(), logits.data(), maxima.data(), tokens, v);
  pass.tensor.maximum(maxima);
  row_exponential_sums(pass.type(), logits.data(), maxima.data(), sums.data(), tokens, v);
  for (std::size_t i = 0; i < count; ++i)
    if (rows[i] >= 0)
      convert(pass.type(), logits.at(static_cast<Index>(i) * v + rows[i]), Type::Float32, &sums[count + i],
              1);
  pass.tensor.sum(sums);

  double loss = 0;
  for (std::size_t i = 0; i < count; ++i)
    loss += std::log(static_cast<double>(sums[i])) + static_cast<double>(maxima[i]) -
            static_cast<double>(sums[count + i]);
  if (pass.training) {
    softmax_gradient(pass.type(), logits.data(), maxima.data(), sums.data(), rows.data(), scale, tokens, v);
    state.d_logits = std::move(logits);
  } else {
    state = HeadState();
  }
  return loss;
}

Array Head::backward(const Pass& pass, const void* weights, const void* output_weight, UnitGradient gradient,
                     void* d_output_weight, HeadState& state) const {
  const Index tokens = pass.tokens(), c = pass.shape.width, v = local_vocabulary(pass);
  const void* norm_weight = advance(weights, pass.type(), (*layout_)[head::NormWeight].offset);
  Array room;
  const Array& x = pass.tensor.enter(state.norm.output, room);
  linear_weight_gradient(pass.products, state.d_logits.data(), x.data(), d_output_weight, gradient.accumulate,
                         tokens, c, v);
  Array d_norm = pass.activation(tokens * c);
  linear_input_gradient(pass.products, state.d_logits.data(), output_weight, d_norm.data(), tokens, c, v);
  d_norm = pass.tensor.leave(std::move(d_norm));
  Array d_input = pass.activation(d_norm.count());
  d_input.fill_zero();
  normalize_backward(pass, d_norm, state.input, state.norm, norm_weight, d_input,
                     advance(gradient.data, pass.type(), (*layout_)[head::NormWeight].offset),
                     advance(gradient.data, pass.type(), (*layout_)[head::NormBias].offset),
                     gradient.accumulate);
  state = HeadState();
  return d_input;
}

}  // namespace trainer
