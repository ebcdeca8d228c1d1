// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <fstream>
#include <nlohmann/json_fwd.hpp>

#include "report/history.hpp"
#include "report/measurement.hpp"
#include "worker.hpp"

namespace trainer {

/// What rank 0 tells of the run: lines for people on standard output, and objects for programs in
/// options.metrics. Throws Error when the latter cannot be written.
class Progress {
 public:
  /// Options must outlive it. Opens the file of metrics; a run that `goes_on` adds to it.
  Progress(const Options& options, bool goes_on);

  /// `checkpoint`: what the run goes on from, or null.
  void start(const Corpus& corpus, const Worker& worker, const Checkpoint* checkpoint);
  void step(Index step, const Worker::StepResult& result);
  void held_out(Index step, double loss);
  /// Of all pushes that asynchronous servers applied.
  void staleness(const ParameterServer::Staleness& counts);
  /// `trouble`: "", or why there is no checkpoint.
  void saved(Index steps, const std::string& trouble);
  void stopped(Index steps, const char* by);
  /// Of every rank, by rank, at the end.
  void ranks(const std::vector<Measurement>& measurements);

  const History& history() const { return history_; }

 private:
  void require_metrics() const;
  double tokens_a_step() const;
  void print_step(Index step, const Worker::StepResult& last);
  std::string particulars(const Worker::StepResult& result) const;
  void write(const nlohmann::json& object);
  void write_line(const std::string& line);
  void tell_checkpoint(const Checkpoint& checkpoint) const;

  /// Of the steps since the last line.
  struct Shown {
    Index steps = 0, skipped = 0;
    double loss = 0, seconds = 0, blocked = 0;
    void take(const Worker::StepResult& result);
  };

  const Options& options_;
  std::ofstream metrics_;
  Shown shown_;
  Index first_step_ = 0;
  double seconds_ = 0, bytes_a_token_ = 1;
  History history_;
};

}  // namespace trainer
