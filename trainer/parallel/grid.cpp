// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/grid.hpp"

namespace trainer {

Grid::Grid(GridShape shape, RankGroup all) : world(std::move(all)) {
  const int rank = world.rank(), tensor_rank = rank % shape.tensor, data_rank = rank / shape.tensor;
  // Every rank makes every split, for splits are collective; groups of one are not worth a communicator.
  auto split = [&](int ranks, int color, int key) {
    return ranks == 1 ? RankGroup() : RankGroup(world.communicator().split(color, key));
  };
  tensor = split(shape.tensor, data_rank, tensor_rank);
  data = split(shape.data, tensor_rank, data_rank);
  data_gather = split(shape.data, tensor_rank, data_rank);
}

}  // namespace trainer
