// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fstream>
#include <nlohmann/json_fwd.hpp>

#include "worker.hpp"

namespace trainer {

/// What rank 0 tells of the run: lines for people on standard output, and objects for programs in
/// options.metrics. Throws Error when the latter cannot be written.
class Progress {
 public:
  /// Options must outlive it. Opens the file of metrics; a run that `goes_on` adds to it.
  Progress(const Options& options, bool goes_on);

  void start(const Corpus& corpus, const Worker& worker, Index first_step);
  void step(Index step, const Worker::StepResult& result);
  void held_out(Index step, double loss);
  /// Of all gradients that asynchronous servers applied.
  void staleness(const ParameterServer::Staleness& counts);
  /// `trouble`: "", or why there is no checkpoint.
  void saved(Index steps, const std::string& trouble);

 private:
  void require_metrics() const;
  std::string learned(const Worker::StepResult& result) const;
  std::string particulars(const Worker::StepResult& result) const;
  void write(const nlohmann::json& object);

  const Options& options_;
  std::ofstream metrics_;
  Index first_step_ = 0;
  double seconds_ = 0;
};

}  // namespace trainer
