// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/grid.hpp"

namespace trainer {

Grid::Grid(GridShape shape, RankGroup all, Timeline& timeline) : world(std::move(all)) {
  const int tensor_rank = world.rank() % shape.tensor;
  const int data_rank = world.rank() / shape.tensor % shape.data;
  const int stage = world.rank() / shape.tensor / shape.data;
  // Every rank makes every split, for splits are collective; groups of one are not worth a communicator.
  auto split = [&](int ranks, int color, int key, const char* name) {
    return ranks == 1 ? RankGroup() : RankGroup(world.communicator().split(color, key), name, &timeline);
  };
  tensor = split(shape.tensor, stage * shape.data + data_rank, tensor_rank, "tensor");
  data = split(shape.data, stage * shape.tensor + tensor_rank, data_rank, "data");
  data_gather = split(shape.data, stage * shape.tensor + tensor_rank, data_rank, "data (gather)");
  pipeline = split(shape.pipeline.stages, data_rank * shape.tensor + tensor_rank, stage, "pipeline");
  if (shape.pipeline.stages > 1) join_neighbours(shape.pipeline, timeline);
}

// Edge e leads from stage e to the next one, the last edge back to the first stage. Edges that share a stage
// cannot be split in one call, so that even ones, odd ones, and the last of an odd ring take turns.
void Grid::join_neighbours(const PipelineShape& shape, Timeline& timeline) {
  const int stages = shape.stages, stage = pipeline.rank();
  const int edges = shape.chunks > 1 ? stages : stages - 1;
  auto turn_of = [&](int edge) { return edge == stages - 1 && stages % 2 == 1 ? 2 : edge % 2; };
  auto split = [&](int color, int key, const char* name) {
    tutti::Communicator pair = pipeline.communicator().split(color, key);
    return color == NCCL_SPLIT_NOCOLOR ? RankGroup() : RankGroup(std::move(pair), name, &timeline);
  };
  const int out = stage, in = (stage + stages - 1) % stages;
  for (int turn = 0; turn < 3; ++turn) {
    const bool sends = out < edges && turn_of(out) == turn, receives = in < edges && turn_of(in) == turn;
    const int color = sends ? out : receives ? in : NCCL_SPLIT_NOCOLOR;
    const char* name = sends ? "next stage" : "previous stage";
    RankGroup activations = split(color, stage, name), gradients = split(color, stage, name);
    if (sends) {
      activations_out = std::move(activations);
      gradients_in = std::move(gradients);
    } else if (receives) {
      activations_in = std::move(activations);
      gradients_out = std::move(gradients);
    }
  }
  const bool is_end = stage == 0 || stage == stages - 1;
  ends = split(is_end ? 0 : NCCL_SPLIT_NOCOLOR, stage, "ends");
}

}  // namespace trainer
