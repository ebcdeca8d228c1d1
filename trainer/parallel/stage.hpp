// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/block.hpp"
#include "model/ends.hpp"
#include "parallel/model_states.hpp"

namespace trainer {

/// Tokens of a micro-batch and what should follow each: samples x context.
struct MicroBatch {
  Index first_sample;  ///< number in the step's global batch
  std::vector<Index> tokens, targets;
};

/// The units of the model that one rank computes, from tokens to loss.
class Stage {
 public:
  /// All must outlive it; `layouts` are all units of the model in order, and `states` holds them.
  Stage(const ModelShape& shape, const std::vector<UnitLayout>& layouts, ModelStates& states);

  /// Sum over the tokens of -log p(target). In training its gradient is scaled by `loss_scale`, and what the
  /// backward pass needs is kept under the micro-batch's first sample.
  double forward(const Pass& pass, const MicroBatch& batch, float loss_scale);
  /// Writes gradients; `last`: of the step's micro-batches.
  void backward(const Pass& pass, const MicroBatch& batch, bool last);

 private:
  struct Saved {
    std::vector<BlockState> blocks;
    HeadState head;
  };
  /// The matrix that makes logits, and its gradient.
  const void* output_weight(const Pass& pass, const void* embedding_weights, const void* head_weights) const;
  void* output_gradient(const Pass& pass, UnitGradient embedding_gradient, UnitGradient head_gradient) const;

  const ModelShape& shape_;
  const std::vector<UnitLayout>& layouts_;
  ModelStates& states_;
  Embedding embedding_;
  std::vector<Block> blocks_;
  Head head_;
  std::map<Index, Saved> saved_;
};

}  // namespace trainer
