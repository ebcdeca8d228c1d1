// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <chrono>

#include "parallel/chunk.hpp"

namespace trainer {

/// A chunk that waits in place of computing, so that schedules of many stages can be studied on few cores.
/// All that travels does so as in training, but the numbers mean nothing.
class TimedChunk : public Chunk {
 public:
  /// `block_time`: of a block's forward pass on one rank, for one micro-batch; the backward pass takes twice
  /// that, embeddings and head take nothing.
  TimedChunk(const ModelShape& model, ChunkShape shape, std::span<const UnitLayout> layouts,
             std::size_t first_unit, ModelStates& states, std::chrono::duration<double> block_time)
      : model_(model),
        shape_(shape),
        layouts_(layouts),
        first_unit_(first_unit),
        states_(states),
        block_time_(block_time) {}

  Array forward(const Pass& pass, const MicroBatch& batch, Array input, float loss_scale,
                double& loss) override;
  Array backward(const Pass& pass, const MicroBatch& batch, Array d_output, bool last) override;

 private:
  const ModelShape& model_;
  ChunkShape shape_;
  std::span<const UnitLayout> layouts_;
  std::size_t first_unit_;
  ModelStates& states_;
  std::chrono::duration<double> block_time_;
};

}  // namespace trainer
