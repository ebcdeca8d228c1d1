// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>

#include "checkpoint/checkpoint.hpp"
#include "data/corpus.hpp"
#include "options.hpp"
#include "parallel/stage.hpp"
#include "parallel/tensor_parallel.hpp"

namespace trainer {

/// Throws Error, on all ranks, when the ranks of `world` were asked for different runs. Collective.
void require_agreement(const Options& options, const Corpus& corpus, const Checkpoint* checkpoint,
                       RankGroup& world);
/// What a checkpoint after `steps` steps says; a run that scales losses fills in the scale.
CheckpointInfo checkpoint_info(const Options& options, Index steps, Index updates);

/// One rank of a training run.
class Worker {
 public:
  struct StepResult {
    double loss;           ///< mean over the tokens of the whole batch, in nats
    double gradient_norm;  ///< of the whole model, before clipping
    float rate;
    bool skipped;  ///< gradients overflowed; the loss scale was halved
    double seconds, blocked_seconds;
    double staleness = 0;  ///< of this rank's gradient, in updates (parameter servers)
    double bubble;         ///< share of forward and backward in which this rank's pipeline stood idle
  };

  /// Collective. Blocks until all ranks of `world` have come; throws Error when they were asked for different
  /// runs. Options and corpus must outlive it. Goes on from `checkpoint` where one is given.
  Worker(const Options& options, const Corpus& corpus, tutti::Communicator world,
         const Checkpoint* checkpoint = nullptr);
  /// The same with servers, as one of the workers; `served` must outlive it, and gives its `own` away.
  Worker(const Options& options, const Corpus& corpus, ServedWorld& served,
         const Checkpoint* checkpoint = nullptr);

  /// Trains on batch number `step`. Collective.
  StepResult step(Index step);
  /// Mean loss over the held-out text, at most `samples` of it. Collective.
  double held_out_loss(Index samples);

  /// Writes weights and optimizer states after `steps` steps. Collective over `job`, all ranks with servers.
  /// Returns "" or what went wrong.
  std::string save(const CheckpointWriter& writer, RankGroup& job, Index steps);
  /// With servers: this worker makes no more steps. Collective with asynchronous ones.
  void finish();
  /// Updates of the weights so far, for checkpoints: asynchronous servers make some for other workers.
  void set_updates(Index updates) { updates_ = updates; }

  const Grid& grid() const { return grid_; }
  Grid& grid() { return grid_; }
  const Stage& stage() const { return stage_; }
  const Timeline& timeline() const { return timeline_; }
  Timeline& timeline() { return timeline_; }
  const Memory& memory() const { return memory_; }
  const ModelStates& states() const { return states_; }
  /// Calls f(first element in the model's numbering, gradients of the last step before clipping, how many)
  /// for all that this rank owns.
  void for_each_gradient(const std::function<void(Index, const void*, Index)>& f);
  /// The whole model's.
  const std::vector<UnitSpec>& units() const { return model_; }

 private:
  Worker(const Options& options, const Corpus& corpus, tutti::Communicator world,
         const Checkpoint* checkpoint, ServedWorld* served);
  Pass pass(Index samples, Index first_sample, Index step, bool training);
  MicroBatch batch(Index number_in_step, Index step) const;
  std::vector<UnitSpec> own_units() const;
  std::vector<std::unique_ptr<Chunk>> make_chunks();
  /// Whether this rank, of those that own the parameter, is the one whose copy counts and is written.
  bool represents(const ParameterSpec& parameter) const;
  void sum_tied_gradients();
  void sum_norm_gradients();
  double gradient_norm();
  void finish_step(Index step, StepResult& result);

  const Options& options_;
  const Corpus& corpus_;
  Timeline timeline_;
  Memory memory_;
  Products products_;
  Grid grid_;
  TensorParallel tensor_;
  std::vector<UnitSpec> model_;     // of the whole model
  std::vector<ChunkShape> chunks_;  // this stage's
  std::vector<UnitSpec> units_;     // this stage's, chunk after chunk
  std::vector<UnitLayout> layouts_;
  ModelStates states_;
  Stage stage_;
  std::unique_ptr<ServerClient> servers_;  // where there are some
  LossScale loss_scale_;
  Index updates_ = 0;
};

}  // namespace trainer
