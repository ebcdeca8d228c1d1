// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/pipeline_schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace trainer {

std::string name_of(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::GPipe:
      return "gpipe";
    case PipelineSchedule::OneForwardOneBackward:
      return "1f1b";
    case PipelineSchedule::Interleaved:
      return "interleaved";
  }
  return "?";
}

PipelineSchedule pipeline_schedule_from(const std::string& name) {
  for (auto schedule :
       {PipelineSchedule::GPipe, PipelineSchedule::OneForwardOneBackward, PipelineSchedule::Interleaved})
    if (name_of(schedule) == name) return schedule;
  throw Error(fmt::format("--schedule {} is not known: choose gpipe, 1f1b or interleaved", name));
}

// Micro-batches go through the chunks in groups of as many as there are stages: the whole group through the
// first chunk, then through the next, so that the first stage has work when the group comes round to it.
std::vector<PipelineAction> forward_actions(const PipelineShape& shape, Index micro_batches) {
  std::vector<PipelineAction> actions;
  const Index group = shape.chunks == 1 ? micro_batches : shape.stages;
  for (Index first = 0; first < micro_batches; first += group)
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (Index m = first; m < std::min(first + group, micro_batches); ++m)
        actions.push_back({false, m, chunk});
  return actions;
}

namespace {

// Forward passes that a stage makes before its first backward pass: those that keep the stages behind it busy
// until a gradient can come back.
Index warm_up(const PipelineShape& shape, int stage, Index passes) {
  const Index behind = shape.stages - stage - 1;
  switch (shape.schedule) {
    case PipelineSchedule::GPipe:
      return passes;
    case PipelineSchedule::OneForwardOneBackward:
      return std::min(behind, passes);
    case PipelineSchedule::Interleaved:
      // Twice, for between a chunk's forward and backward pass lie passes of the other chunks.
      return std::min(2 * behind + Index{shape.chunks - 1} * shape.stages, passes);
  }
  return passes;
}

}  // namespace

std::vector<PipelineAction> training_actions(const PipelineShape& shape, int stage, Index micro_batches) {
  const std::vector<PipelineAction> forward = forward_actions(shape, micro_batches);
  const std::size_t ahead =
      static_cast<std::size_t>(warm_up(shape, stage, static_cast<Index>(forward.size())));
  std::vector<PipelineAction> actions(forward.begin(), forward.begin() + static_cast<std::ptrdiff_t>(ahead));
  for (std::size_t i = 0; i < forward.size(); ++i) {
    if (ahead + i < forward.size()) actions.push_back(forward[ahead + i]);
    // The way back is the way there with the chunks in reverse.
    PipelineAction back = forward[i];
    actions.push_back({true, back.micro_batch, shape.chunks - 1 - back.chunk});
  }
  return actions;
}

double bubble_share(const PipelineShape& shape, Index micro_batches) {
  const double idle = shape.stages - 1;
  return idle / (static_cast<double>(shape.chunks * micro_batches) + idle);
}

BlockRange blocks_of_part(Index blocks, int parts, int part) {
  const Index first = blocks * part / parts;
  return {first, blocks * (part + 1) / parts - first};
}

}  // namespace trainer
