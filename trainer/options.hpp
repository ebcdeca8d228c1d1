// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/tokenizer.hpp"
#include "model/shape.hpp"
#include "optimizer/learning.hpp"
#include "parallel/grid.hpp"
#include "parallel/model_states.hpp"
#include "parallel/parameter_server.hpp"

namespace trainer {

/// All that a training run is asked to be.
struct Options {
  std::vector<std::string> data;
  std::string tokenizer_file;  ///< as it was typed
  std::shared_ptr<const Tokenizer> tokenizer = byte_tokenizer();
  double held_out = 0.05;

  ModelShape shape;
  Type precision = Type::Float32;
  std::uint64_t seed = 1;

  GridShape grid;
  ServerMode server_mode = ServerMode::None;
  int servers = 0;  ///< ranks beside those of the grid
  bool sequence_parallel = false;
  ZeroStage zero = ZeroStage::None;
  Index bucket_bytes = 4 << 20;
  bool recompute = false;
  double timed_block = 0;  ///< seconds that stand in for a block's forward pass; 0: compute

  Index steps = 100;
  Index batch = 8;        ///< samples of a step, over all ranks
  Index micro_batch = 0;  ///< samples computed at once; 0: all that a rank has
  LearningOptions learning;
  Index evaluate_every = 50;
  Index log_every = 1;     ///< steps of a line
  bool threads = false;    ///< all ranks in this process
  std::string metrics;     ///< file for JSON lines; empty: none
  std::string trace;       ///< file for a timeline of every rank; empty: none
  std::string report;      ///< folder for a page of plots; empty: none
  std::string command;     ///< as it was typed, for the report
  std::string checkpoint;  ///< folder; empty: none
  Index checkpoint_every = 100;
  int keep = 2;  ///< newest checkpoints
  bool resume = false;

  int ranks() const { return grid.ranks() + servers; }
  Index samples_per_rank() const { return batch / grid.data; }
  Index samples_at_once() const { return micro_batch == 0 ? samples_per_rank() : micro_batch; }
  Index micro_batches() const { return samples_per_rank() / samples_at_once(); }
};

/// The model, for people: "8 layers, width 96, ...".
std::string describe(const ModelShape& shape);
/// Throws Error unless it is a share of the text.
void check_held_out(double share);
/// Throws Error when the options contradict each other, or do not make `ranks` ranks.
void check(const Options& options, int ranks);
/// The layout, for people: "dp 2 x tp 2, ZeRO stage 1".
std::string describe_layout(const Options& options);
/// What all ranks must agree on, as one line of text.
std::string agreement(const Options& options);

}  // namespace trainer
