// SPDX-License-Identifier: BSD-3-Clause
#include "model/attention.hpp"

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

}  // namespace

void attend(const Pass& pass, const Array& qkv, Array& probabilities, Array& output) {
  const Heads h(pass);
  const Index t = h.context, d = h.width;
  pass.products.multiply(h.product(t, t, d, h.in_qkv(), h.in_qkv_transposed(), h.in_scores()),
                         qkv.at(h.query()), qkv.at(h.key()), probabilities.data());
  causal_softmax(pass.type(), probabilities.data(), h.scale(), h.samples * h.heads, t);
  pass.products.multiply(h.product(t, d, t, h.in_scores(), h.in_qkv(), h.in_output()), probabilities.data(),
                         qkv.at(h.value()), output.data());
}

void attend_backward(const Pass& pass, const Array& qkv, const Array& probabilities, const Array& d_output,
                     Array& d_qkv) {
  const Heads h(pass);
  const Index t = h.context, d = h.width;
  Array d_scores(pass.memory, Use::Workspace, pass.type(), probabilities.count());
  pass.products.multiply(h.product(t, d, t, h.in_scores_transposed(), h.in_output(), h.in_qkv()),
                         probabilities.data(), d_output.data(), d_qkv.at(h.value()));
  pass.products.multiply(h.product(t, t, d, h.in_output(), h.in_qkv_transposed(), h.in_scores()),
                         d_output.data(), qkv.at(h.value()), d_scores.data());
  causal_softmax_backward(pass.type(), probabilities.data(), d_scores.data(), h.scale(), h.samples * h.heads,
                          t);
  pass.products.multiply(h.product(t, d, t, h.in_scores(), h.in_qkv(), h.in_qkv()), d_scores.data(),
                         qkv.at(h.key()), d_qkv.at(h.query()));
  pass.products.multiply(h.product(t, d, t, h.in_scores_transposed(), h.in_qkv(), h.in_qkv()),
                         d_scores.data(), qkv.at(h.query()), d_qkv.at(h.key()));
}

}  // namespace trainer
