// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "parallel/pipeline_schedule.hpp"
#include "parallel/rank_group.hpp"

namespace trainer {

/// Ranks along each axis of parallelism. Ranks of a tensor group are neighbours, for they talk most; then
/// those of a data group; stages of a pipeline lie farthest apart.
struct GridShape {
  int data = 1, tensor = 1;
  PipelineShape pipeline;
  int ranks() const { return data * tensor * pipeline.stages; }
  bool operator==(const GridShape&) const = default;
};

/// One rank's place in the grid and its groups, split from the world's communicator.
class Grid {
 public:
  /// Collective over the world, which must have shape.ranks() ranks. The timeline must outlive it.
  Grid(GridShape shape, RankGroup world, Timeline& timeline);

  RankGroup world;
  RankGroup tensor;       ///< the ranks that share each layer
  RankGroup data;         ///< the ranks that hold the same part of the model
  RankGroup data_gather;  ///< the same ranks, for what goes on beside reductions
  RankGroup pipeline;     ///< the stages that a sample goes through
  RankGroup ends;         ///< of those the first and the last, which share a tied embedding; else alone
  /// Pairs with the neighbouring stages, one for each direction, so that none waits for another. The first
  /// and the last stage are neighbours where stages have several chunks.
  RankGroup activations_in, activations_out, gradients_in, gradients_out;

 private:
  void join_neighbours(const PipelineShape& shape, Timeline& timeline);
};

}  // namespace trainer
