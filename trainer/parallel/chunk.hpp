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
#include "parallel/pipeline_schedule.hpp"

namespace trainer {

/// Tokens of a micro-batch and what should follow each: samples x context.
struct MicroBatch {
  Index first_sample;  ///< number in the step's global batch
  std::vector<Index> tokens, targets;
};

/// What a chunk of the model consists of: some blocks, before them the embeddings in the first chunk, behind
/// them the head in the last.
struct ChunkShape {
  BlockRange blocks;
  bool first = true, last = true;
};

/// Chunk number `part` of `parts` that the model is cut into.
ChunkShape chunk_shape(const ModelShape& shape, int parts, int part);
/// The chunk's units, of the model's. A tied head that is not in the embeddings' chunk has a copy of the
/// tokens' table as its weight, which starts with the same numbers.
std::vector<UnitSpec> chunk_units(const std::vector<UnitSpec>& model, const ModelShape& shape,
                                  const ChunkShape& chunk);

/// Whether the gradient of a tied table comes in two halves, from the embeddings' chunk and from the head's.
/// Who has both makes the gradient `done` then (Worker::sum_tied_gradients).
inline bool ties_across(const ModelShape& model, const ChunkShape& chunk) {
  return model.tied && chunk.first != chunk.last;
}

/// A chunk of the model on one rank: it takes activations [own tokens x width] of one micro-batch from the
/// chunk before and gives some to the next, or makes the loss; then the same with gradients on the way back.
class Chunk {
 public:
  Chunk() = default;
  virtual ~Chunk() = default;
  Chunk(const Chunk&) = delete;
  Chunk& operator=(const Chunk&) = delete;

  /// `input` is empty in the first chunk, the result in the last, where `loss` grows by the sum over the
  /// tokens of -log p(target). In training the loss' gradient is scaled by `loss_scale`, and what the
  /// backward pass needs is kept under the micro-batch's first sample.
  virtual Array forward(const Pass& pass, const MicroBatch& batch, Array input, float loss_scale,
                        double& loss) = 0;
  /// Writes gradients; `last`: of the step's micro-batches. `d_output` is empty in the last chunk, the result
  /// in the first.
  virtual Array backward(const Pass& pass, const MicroBatch& batch, Array d_output, bool last) = 0;
};

/// The chunk that computes.
class ModelChunk : public Chunk {
 public:
  /// All must outlive it. `layouts`: of the chunk's units, which are those from `first_unit` on in `states`.
  ModelChunk(const ModelShape& model, ChunkShape shape, std::span<const UnitLayout> layouts,
             std::size_t first_unit, ModelStates& states);

  Array forward(const Pass& pass, const MicroBatch& batch, Array input, float loss_scale,
                double& loss) override;
  Array backward(const Pass& pass, const MicroBatch& batch, Array d_output, bool last) override;
  /// Of the whole model in one chunk: logits of what follows each token, [tokens x local vocabulary].
  Array logits(const Pass& pass, const MicroBatch& batch);

 private:
  struct Saved {
    std::vector<BlockState> blocks;
    HeadState head;
  };
  /// Units in `states_`.
  std::size_t embedding_unit() const { return first_unit_; }
  std::size_t block_unit(std::size_t block) const { return first_unit_ + (shape_.first ? 1 : 0) + block; }
  std::size_t head_unit() const { return block_unit(blocks_.size()); }
  /// The head's weight is the embeddings' table in this chunk.
  bool ties_within() const { return model_.tied && shape_.first && shape_.last; }

  Array embed_and_run_blocks(const Pass& pass, const MicroBatch& batch, Array input,
                             std::vector<BlockState>& states);
  /// Runs f(weights of the head, the matrix that makes logits) while both are here.
  template <class F>
  auto with_head(const Pass& pass, F f);
  Array head_backward(const Pass& pass, HeadState& state, bool last);

  const ModelShape& model_;
  ChunkShape shape_;
  std::span<const UnitLayout> layouts_;
  std::size_t first_unit_;
  ModelStates& states_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::optional<Head> head_;
  std::map<Index, Saved> saved_;
};

}  // namespace trainer
