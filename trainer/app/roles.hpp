// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>
#include <vector>

#include "app/progress.hpp"
#include "report/measurement.hpp"
#include "worker.hpp"

namespace trainer {

/// One rank's part in the steps of training: a worker's, or a server's.
class Role {
 public:
  Role(const Options& options, std::vector<const RankGroup*> groups, Timeline& timeline)
      : options_(options), meter_(std::move(groups), timeline), timeline_(timeline) {}
  virtual ~Role() = default;
  Role(const Role&) = delete;
  Role& operator=(const Role&) = delete;

  virtual RankGroup& job() = 0;  ///< all ranks
  virtual std::string name() const = 0;
  virtual void step(Index step) = 0;
  virtual void evaluate(Index) {}
  /// Returns "" or why there is no checkpoint.
  virtual std::string save(const CheckpointWriter& writer, Index steps) = 0;
  virtual void saved(Index, const std::string&) {}
  virtual void stopped(Index, const char*) {}
  /// With asynchronous servers: steps until this rank is to stop; returns how many were made in all.
  virtual Index run_alone(Index first_step) = 0;

  Timeline& timeline() { return timeline_; }
  /// Of the last step.
  double last_seconds() const { return meter_.last_end() - meter_.last_begin(); }
  /// Of all ranks, on rank 0. Collective.
  std::vector<Measurement> measurements();
  /// What rank 0 saw; else null.
  virtual Progress* progress() { return nullptr; }

 protected:
  /// Begins to measure a step.
  void begin_step();
  virtual const Memory& memory() const = 0;
  virtual RankPlace place() const = 0;

  const Options& options_;
  Meter meter_;

 private:
  Timeline& timeline_;
};

class WorkerRole : public Role {
 public:
  /// All must outlive it. `served`: the servers of this job, or null. Rank 0 tells of itself through
  /// `progress`; others have none.
  WorkerRole(const Options& options, Worker& worker, ServedWorld* served, Progress* progress);

  RankGroup& job() override { return served_ != nullptr ? served_->world : worker_.grid().world; }
  std::string name() const override;
  void step(Index step) override;
  void evaluate(Index step) override;
  std::string save(const CheckpointWriter& writer, Index steps) override {
    return worker_.save(writer, job(), steps);
  }
  void saved(Index steps, const std::string& trouble) override;
  void stopped(Index steps, const char* by) override;
  Index run_alone(Index first_step) override;
  Progress* progress() override { return progress_; }

 private:
  const Memory& memory() const override { return worker_.memory(); }
  RankPlace place() const override { return {.serves = false, .stage = worker_.grid().pipeline.rank()}; }

  Worker& worker_;
  ServedWorld* served_;
  Progress* progress_;
};

class ServerRole : public Role {
 public:
  /// All must outlive it.
  ServerRole(const Options& options, ServedWorld& served, ParameterServer& server, Timeline& timeline);

  RankGroup& job() override { return served_.world; }
  std::string name() const override { return "server " + std::to_string(served_.index()); }
  void step(Index step) override;
  std::string save(const CheckpointWriter& writer, Index steps) override;
  Index run_alone(Index first_step) override;

 private:
  const Memory& memory() const override { return server_.memory(); }
  RankPlace place() const override { return {.serves = true}; }

  ServedWorld& served_;
  ParameterServer& server_;
};

}  // namespace trainer
