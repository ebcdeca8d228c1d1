// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <functional>

#include "parallel/chunk.hpp"
#include "parallel/grid.hpp"
#include "parallel/link.hpp"

namespace trainer {

/// One rank's stage of the pipeline: its chunks of the model, and the links to its neighbours. A pipeline of
/// one stage is the whole model.
class Stage {
 public:
  /// The micro-batches that go through the pipeline together; all have as many samples.
  struct Work {
    Index count;
    std::function<MicroBatch(Index)> batch;
    std::function<Pass(const MicroBatch&)> pass;
  };

  /// All but `chunks` must outlive it.
  Stage(const PipelineShape& shape, std::vector<std::unique_ptr<Chunk>> chunks, Grid& grid, Memory& memory,
        Timeline& timeline);

  /// Forward and backward for all micro-batches. Returns for each the sum over its tokens of -log p(target)
  /// on the last stage, 0 on the others. Collective over the pipeline's ranks.
  std::vector<double> train(const Work& work, float loss_scale);
  /// Forward alone.
  std::vector<double> evaluate(const Work& work);

  /// Most passes of micro-batches through a chunk that were stored for their backward pass at a time.
  Index peak_stored() const { return peak_stored_; }

 private:
  bool is_first(int chunk) const { return stage_ == 0 && chunk == 0; }
  bool is_last(int chunk) const { return stage_ == shape_.stages - 1 && chunk == shape_.chunks - 1; }
  void expect_messages(const std::vector<PipelineAction>& actions, Link::MessageShape shape);
  void forward(const Work& work, const PipelineAction& action, float loss_scale, double& loss);
  void backward(const Work& work, const PipelineAction& action);
  std::vector<double> run(const Work& work, const std::vector<PipelineAction>& actions, float loss_scale);

  PipelineShape shape_;
  int stage_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  Timeline& timeline_;
  std::optional<Link> activations_in_, activations_out_, gradients_in_, gradients_out_;
  Index stored_ = 0, peak_stored_ = 0;
};

}  // namespace trainer
