// SPDX-License-Identifier: BSD-3-Clause
#include "app/training.hpp"

#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "app/progress.hpp"
#include "app/trace.hpp"

namespace trainer {

namespace {

std::atomic<int> stop_signal{0};
std::atomic<std::time_t> stop_time{0};

// Launchers pass on what a terminal has sent to all, so that one Ctrl-C comes as two signals.
void on_signal(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (stop_signal != 0 && now.tv_sec > stop_time + 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (stop_signal == 0) stop_time = now.tv_sec;
  stop_signal = signal;
}

// The newest checkpoint of the run, if there is one and it is wanted.
std::unique_ptr<Checkpoint> checkpoint_of(const Options& options) {
  if (options.checkpoint.empty() || list_checkpoints(options.checkpoint).empty()) return nullptr;
  auto checkpoint = std::make_unique<Checkpoint>(options.checkpoint);
  if (!options.resume)
    throw Error(
        fmt::format("--checkpoint {} has a checkpoint of step {}: go on from it with --resume, or choose "
                    "another folder",
                    options.checkpoint, checkpoint->info().step));
  ModelShape found = checkpoint->info().shape;
  found.dropout = options.shape.dropout;
  if (found != options.shape)
    throw Error(
        fmt::format("{} has a model of {}, but this run is asked for {}: give the same model's options",
                    checkpoint->path().string(), describe(found), describe(options.shape)));
  return checkpoint;
}

bool any_rank(RankGroup& job, bool says) {
  double count = says ? 1 : 0;
  job.all_reduce(&count, 1);
  return count > 0;
}

// A rank that ends takes those with it that share a group with it, and they others. What went wrong first is
// what the job's communicator knows; "" where it knows nothing within half a second.
std::string first_failure(const RankGroup& job) {
  for (int tries = 0; tries < 50; ++tries) {
    ncclResult_t state = ncclSuccess;
    if (job.size() > 1 && ncclCommGetAsyncError(job.communicator().get(), &state) == ncclSuccess &&
        state != ncclSuccess && state != ncclInProgress)
      return ncclGetLastError(job.communicator().get());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "";
}

// One rank's part in the steps of training: a worker's, or a server's.
class Role {
 public:
  virtual ~Role() = default;
  virtual RankGroup& job() = 0;  ///< all ranks
  virtual Timeline& timeline() = 0;
  virtual std::string name() const = 0;
  virtual void step(Index step) = 0;
  virtual void evaluate(Index) {}
  virtual std::string save(const CheckpointWriter& writer, Index steps) = 0;
  virtual void saved(Index, const std::string&) {}
  virtual void stopped(Index, const char*) {}
  /// With asynchronous servers: steps until this rank is to stop; returns how many were made in all.
  virtual Index run_alone(Index first_step) = 0;
};

class WorkerRole : public Role {
 public:
  static constexpr Index kHeldOutSamples = 32;

  WorkerRole(const Options& options, const Corpus& corpus, const Checkpoint* checkpoint,
             tutti::Communicator world)
      : options_(options) {
    if (world.rank() == 0) progress_.emplace(options, checkpoint != nullptr);
    worker_.emplace(options, corpus, std::move(world), checkpoint);
    tell_start(corpus, checkpoint);
  }
  WorkerRole(const Options& options, const Corpus& corpus, const Checkpoint* checkpoint, ServedWorld& served)
      : options_(options), served_(&served) {
    if (served.world.rank() == 0) progress_.emplace(options, checkpoint != nullptr);
    worker_.emplace(options, corpus, served, checkpoint);
    tell_start(corpus, checkpoint);
  }

  RankGroup& job() override { return served_ != nullptr ? served_->world : worker_->grid().world; }
  Timeline& timeline() override { return worker_->timeline(); }
  std::string name() const override {
    const Grid& grid = worker_->grid();
    return fmt::format("data {}, tensor {}, stage {}", grid.data.rank(), grid.tensor.rank(),
                       grid.pipeline.rank());
  }
  void step(Index step) override {
    const Worker::StepResult result = worker_->step(step);
    if (progress_) progress_->step(step, result);
  }
  void evaluate(Index step) override {
    const double loss = worker_->held_out_loss(kHeldOutSamples);
    if (progress_) progress_->held_out(step, loss);
  }
  std::string save(const CheckpointWriter& writer, Index steps) override {
    return worker_->save(writer, job(), steps);
  }
  void saved(Index steps, const std::string& trouble) override {
    if (progress_) progress_->saved(steps, trouble);
  }
  void stopped(Index steps, const char* by) override {
    if (progress_) fmt::print("stopped after step {} by {}\n", steps, by);
  }
  Index run_alone(Index first_step) override {
    Index step = first_step;
    while (step < options_.steps && stop_signal == 0) this->step(step++);
    worker_->finish();
    double updates = 0, steps = -static_cast<double>(step);
    job().all_reduce(&updates, 1, ncclMax);
    job().all_reduce(&steps, 1, ncclMax);
    worker_->set_updates(static_cast<Index>(updates));
    ParameterServer::Staleness staleness{};
    job().all_reduce(staleness.data(), static_cast<Index>(staleness.size()));
    if (progress_) progress_->staleness(staleness);
    return -static_cast<Index>(steps);
  }

 private:
  void tell_start(const Corpus& corpus, const Checkpoint* checkpoint) {
    if (!progress_) return;
    progress_->start(corpus, *worker_, checkpoint != nullptr ? checkpoint->info().step : 0);
    if (checkpoint != nullptr)
      fmt::print("going on from {}, written by {}\n", checkpoint->path().string(), checkpoint->info().layout);
  }

  const Options& options_;
  ServedWorld* served_ = nullptr;
  std::optional<Progress> progress_;
  std::optional<Worker> worker_;
};

class ServerRole : public Role {
 public:
  ServerRole(const Options& options, ServedWorld& served, const Checkpoint* checkpoint, Timeline& timeline)
      : options_(options),
        served_(served),
        timeline_(timeline),
        units_(model_units(options.shape)),
        layouts_(layouts_of(units_, {})),
        server_(served, options.learning, options.steps, options.precision, layouts_, timeline) {
    if (checkpoint == nullptr)
      server_.start(options.seed);
    else
      server_.resume(checkpoint->source(), checkpoint->info().updates);
  }

  RankGroup& job() override { return served_.world; }
  Timeline& timeline() override { return timeline_; }
  std::string name() const override { return fmt::format("server {}", served_.index()); }
  void step(Index step) override { server_.step(step); }
  std::string save(const CheckpointWriter& writer, Index steps) override {
    return writer.write(job(), checkpoint_info(options_, steps, server_.updates()),
                        [&](StateKind kind, const CheckpointWriter::Emit& emit) {
                          server_.states().for_each_owned_run(
                              [&](const ModelStates::Owned& owned, Index number, Index place, Index length) {
                                emit(number, owned.state(kind) + place, length);
                              });
                        });
  }
  Index run_alone(Index) override {
    server_.serve();
    double updates = static_cast<double>(server_.updates()), steps = -static_cast<double>(options_.steps);
    job().all_reduce(&updates, 1, ncclMax);
    job().all_reduce(&steps, 1, ncclMax);
    ParameterServer::Staleness staleness = server_.staleness();
    job().all_reduce(staleness.data(), static_cast<Index>(staleness.size()));
    return -static_cast<Index>(steps);
  }

 private:
  const Options& options_;
  ServedWorld& served_;
  Timeline& timeline_;
  std::vector<UnitSpec> units_;
  std::vector<UnitLayout> layouts_;
  ParameterServer server_;
};

// Writes a checkpoint after `steps` steps; a run that ends must have one.
void save(const Options& options, Role& role, Index steps, bool ends) {
  const CheckpointWriter writer(options.checkpoint, options.keep);
  const std::string trouble = role.save(writer, steps);
  if (ends && !trouble.empty()) throw Error(fmt::format("no checkpoint of step {}: {}", steps, trouble));
  role.saved(steps, trouble);
}

int run(const Options& options, Role& role, Index first_step) {
  const bool alone = options.server_mode == ServerMode::Asynchronous;
  for (Index steps = first_step; steps < options.steps;) {
    if (alone)
      steps = role.run_alone(steps);
    else
      role.step(steps++);
    const bool stops = any_rank(role.job(), stop_signal != 0), ends = stops || steps == options.steps;
    if (options.timed_block == 0 && !stops && (ends || steps % options.evaluate_every == 0))
      role.evaluate(steps - 1);
    if (!options.checkpoint.empty() && (ends || steps % options.checkpoint_every == 0))
      save(options, role, steps, ends);
    if (!stops) continue;
    const int signal = stop_signal == SIGTERM ? SIGTERM : SIGINT;
    role.stopped(steps, signal == SIGTERM ? "SIGTERM" : "Ctrl-C");
    return 128 + signal;
  }
  return 0;
}

// Names what went wrong first, where ranks were lost.
int run_and_explain(const Options& options, Role& role, Index first_step) {
  try {
    role.timeline().keep(!options.trace.empty());
    const int code = run(options, role, first_step);
    if (!options.trace.empty()) write_trace(options.trace, role.job(), role.timeline(), role.name());
    return code;
  } catch (const tutti::Exception&) {
    const std::string first = first_failure(role.job());
    if (first.empty()) throw;
    throw std::runtime_error(first);
  }
}

}  // namespace

void stop_on_signals() {
  for (int signal : {SIGINT, SIGTERM}) std::signal(signal, on_signal);
}

int train(const Options& options, const Corpus& corpus, tutti::Communicator world) {
  const std::unique_ptr<Checkpoint> checkpoint = checkpoint_of(options);
  const Index first_step = checkpoint ? checkpoint->info().step : 0;
  if (options.server_mode == ServerMode::None) {
    WorkerRole role(options, corpus, checkpoint.get(), std::move(world));
    return run_and_explain(options, role, first_step);
  }
  Timeline timeline;  // of a server; a worker has its own
  RankGroup job(std::move(world), "world", &timeline);
  require_agreement(options, corpus, checkpoint.get(), job);
  ServedWorld served(options.grid.ranks(), options.servers, std::move(job), timeline);
  if (served.is_server()) {
    ServerRole role(options, served, checkpoint.get(), timeline);
    return run_and_explain(options, role, first_step);
  }
  WorkerRole role(options, corpus, checkpoint.get(), served);
  return run_and_explain(options, role, first_step);
}

int train_in_threads(const Options& options, const Corpus& corpus) {
  std::vector<tutti::Communicator> communicators = tutti::Communicator::local(options.ranks());
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr first_error;
  int code = 0;
  for (tutti::Communicator& communicator : communicators)
    threads.emplace_back([&] {
      try {
        const int own = train(options, corpus, std::move(communicator));
        std::lock_guard lock(mutex);
        code = own;
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
  return code;
}

}  // namespace trainer
