// SPDX-License-Identifier: BSD-3-Clause
#include "model/attention.hpp"

#include <algorithm>
#include <cmath>

namespace trainer {

namespace {

// How the operands lie: batches are samples (outer) and heads (inner).
struct Heads {
  Index samples, heads, context, width, row;  // row: of qkv

  explicit Heads(const Pass& pass)
      : samples(pass.samples),
        heads(pass.shape.heads / pass.tensor.shard().size),
        context(pass.shape.context),
        width(pass.shape.head_width()),
        row(3 * heads * width) {}

  Index query() const { return 0; }
  Index key() const { return heads * width; }
  Index value() const { return 2 * heads * width; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(width)); }

  Strides in_qkv() const { return {row, 1, context * row, width}; }
  Strides in_qkv_transposed() const { return {1, row, context * row, width}; }
  Strides in_output() const { return {heads * width, 1, context * heads * width, width}; }
  Strides in_output_transposed() const { return {1, heads * width, context * heads * width, width}; }
  Strides in_scores() const { return {context, 1, heads * context * context, context * context}; }
  Strides in_scores_transposed() const { return {1, context, heads * context * context, context * context}; }

  Product product(Index m, Index n, Index k, Strides a, Strides b, Strides c) const {
    return {.m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .outer = samples, .inner = heads};
  }
};

// A query sees keys up to its own place: queries are taken block by block with the keys that their last one
// sees, keys with the queries from their first one on, and what lies above the diagonal blocks is never
// touched.
template <class Body>
void for_each_block(Index context, Body body) {
  constexpr Index kBlock = 128;
  for (Index first = 0; first < context; first += kBlock) body(first, std::min(first + kBlock, context));
}

}  // namespace

void attend(const Pass& pass, const Array& qkv, Array& probabilities, Array& output) {
  const Heads h(pass);
  const Index t = h.context, d = h.width;
  for_each_block(t, [&](Index first, Index end) {
    pass.products.multiply(h.product(end - first, end, d, h.in_qkv(), h.in_qkv_transposed(), h.in_scores()),
                           qkv.at(h.query() + first * h.row), qkv.at(h.key()), probabilities.at(first * t));
  });
  causal_softmax(pass.type(), probabilities.data(), h.scale(), h.samples * h.heads, t);
  for_each_block(t, [&](Index first, Index end) {
    pass.products.multiply(h.product(end - first, d, end, h.in_scores(), h.in_qkv(), h.in_output()),
                           probabilities.at(first * t), qkv.at(h.value()), output.at(first * h.heads * d));
  });
}

void attend_backward(const Pass& pass, const Array& qkv, const Array& probabilities, const Array& d_output,
                     Array& d_qkv) {
  const Heads h(pass);
  const Index t = h.context, d = h.width;
  Array d_scores(pass.memory, Use::Workspace, pass.type(), probabilities.count());
  for_each_block(t, [&](Index first, Index end) {
    pass.products.multiply(
        h.product(end - first, d, t - first, h.in_scores_transposed(), h.in_output(), h.in_qkv()),
        probabilities.at(first * t + first), d_output.at(first * h.heads * d),
        d_qkv.at(h.value() + first * h.row));
    pass.products.multiply(
        h.product(end - first, end, d, h.in_output(), h.in_qkv_transposed(), h.in_scores()),
        d_output.at(first * h.heads * d), qkv.at(h.value()), d_scores.at(first * t));
  });
  causal_softmax_backward(pass.type(), probabilities.data(), d_scores.data(), h.scale(), h.samples * h.heads,
                          t);
  for_each_block(t, [&](Index first, Index end) {
    pass.products.multiply(h.product(end - first, d, end, h.in_scores(), h.in_qkv(), h.in_qkv()),
                           d_scores.at(first * t), qkv.at(h.key()), d_qkv.at(h.query() + first * h.row));
    pass.products.multiply(
        h.product(end - first, d, t - first, h.in_scores_transposed(), h.in_qkv(), h.in_qkv()),
        d_scores.at(first * t + first), qkv.at(h.query() + first * h.row), d_qkv.at(h.key() + first * h.row));
  });
}

}  // namespace trainer
