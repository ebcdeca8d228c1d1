// SPDX-License-Identifier: BSD-3-Clause
//
// What stands before the first block and after the last.
#pragma once
#include <span>
#include <vector>

#include "model/pass.hpp"

namespace trainer {

/// Token and position embeddings. The tokens' table is cut by rows: a row that another rank holds counts as
/// zero here, and the sum over the ranks puts it in.
class Embedding {
 public:
  explicit Embedding(const UnitLayout& layout) : layout_(&layout) {}
  /// tokens: samples x context; returns [own tokens x width].
  Array forward(const Pass& pass, const void* weights, std::span<const Index> tokens) const;
  /// `tokens_accumulate`: whether the tokens' table already holds a gradient (of a tied head, say).
  void backward(const Pass& pass, UnitGradient gradient, bool tokens_accumulate,
                std::span<const Index> tokens, Array d_output) const;

 private:
  const UnitLayout* layout_;
};

struct HeadState {
  Array input;
  NormState norm;
  Array d_logits;  ///< gradient of the loss, made in the forward pass
};

/// The last norm, the logits, and the cross-entropy over a vocabulary cut among the ranks: of the logits only
/// maxima and sums travel.
class Head {
 public:
  explicit Head(const UnitLayout& layout) : layout_(&layout) {}
  /// The sum over tokens of -log p(target), and where training its gradient times `scale`. `output_weight`:
  /// the matrix [local vocabulary x width] that makes logits: the head's own or the embedding's.
  double forward(const Pass& pass, const void* weights, const void* output_weight, Array input,
                 std::span<const Index> targets, float scale, HeadState& state) const;
  /// Returns the gradient of the input; writes that of `output_weight` too.
  Array backward(const Pass& pass, const void* weights, const void* output_weight, UnitGradient gradient,
                 void* d_output_weight, HeadState& state) const;
  /// The logits of this rank's part of the vocabulary, [tokens x local vocabulary].
  Array logits(const Pass& pass, const void* weights, const void* output_weight, HeadState& state) const;

 private:
  const UnitLayout* layout_;
};

}  // namespace trainer
