// SPDX-License-Identifier: BSD-3-Clause
//
// Who computes which micro-batch when: pipelines as plain data.
#pragma once
#include <string>
#include <vector>

#include "model/tensor.hpp"

namespace trainer {

/// GPipe (Huang et al. 2019): all forward passes, then all backward passes. OneForwardOneBackward
/// (PipeDream's flushing form, Narayanan et al. 2021): as soon as a stage can, it alternates, so that at most
/// as many micro-batches as there are stages are stored. Interleaved (same paper): that with several chunks
/// of the model on each stage, which makes the bubble smaller by their number.
enum class PipelineSchedule : std::uint8_t { GPipe, OneForwardOneBackward, Interleaved };
std::string name_of(PipelineSchedule schedule);
/// "gpipe", "1f1b" or "interleaved"; throws Error otherwise.
PipelineSchedule pipeline_schedule_from(const std::string& name);

/// The pipeline that a rank is a stage of. Chunk c of stage s is part c * stages + s of the model.
struct PipelineShape {
  PipelineSchedule schedule = PipelineSchedule::OneForwardOneBackward;
  int stages = 1;
  int chunks = 1;  ///< of each stage; more than one with Interleaved only
  bool operator==(const PipelineShape&) const = default;
};

/// One pass of one micro-batch through one chunk of a stage.
struct PipelineAction {
  bool backward;
  Index micro_batch;
  int chunk;  ///< of the stage's
  bool operator==(const PipelineAction&) const = default;
};

/// A training step of one stage, in order. With Interleaved `micro_batches` must be divisible by the stages.
std::vector<PipelineAction> training_actions(const PipelineShape& shape, int stage, Index micro_batches);
/// Forward passes alone; any number of micro-batches.
std::vector<PipelineAction> forward_actions(const PipelineShape& shape, Index micro_batches);

/// Share of a stage's time in which it has nothing to do, by the papers' formula: (p-1) / (v m + p - 1).
double bubble_share(const PipelineShape& shape, Index micro_batches);

/// The blocks of one part of the model, of `parts` that are as equal as can be.
struct BlockRange {
  Index first, count;
};
BlockRange blocks_of_part(Index blocks, int parts, int part);

}  // namespace trainer
