// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include "parallel/rank_group.hpp"

namespace trainer {

/// Ranks along each axis of parallelism. Ranks of a tensor group are neighbours, for they talk most.
struct GridShape {
  int data = 1, tensor = 1;
  int ranks() const { return data * tensor; }
  bool operator==(const GridShape&) const = default;
};

/// One rank's place in the grid and its groups, split from the world's communicator.
class Grid {
 public:
  /// Collective over the world, which must have shape.ranks() ranks.
  Grid(GridShape shape, RankGroup world);

  RankGroup world;
  RankGroup tensor;       ///< the ranks that share each layer
  RankGroup data;         ///< the ranks that hold the same part of the model
  RankGroup data_gather;  ///< the same ranks, for what goes on beside reductions
};

}  // namespace trainer
