// SPDX-License-Identifier: BSD-3-Clause
#include "app/training.hpp"

#include <fmt/format.h>

#include <csignal>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "app/results.hpp"
#include "app/stop.hpp"

namespace trainer {

namespace {

// The newest checkpoint of the run, if there is one and it is wanted.
std::unique_ptr<Checkpoint> checkpoint_of(const Options& options) {
  if (options.checkpoint.empty() || list_checkpoints(options.checkpoint).empty()) return nullptr;
  auto checkpoint = std::make_unique<Checkpoint>(options.checkpoint);
  if (!options.resume)
    throw Error(
        fmt::format("--checkpoint {} has a checkpoint of step {}: go on from it with --resume, or choose "
                    "another folder",
                    options.checkpoint, checkpoint->info().step));
  if (checkpoint->info().tokenizer != options.tokenizer->model())
    throw Error(fmt::format(
        "{} was trained on other tokens than this run is asked for: give {}", checkpoint->path().string(),
        checkpoint->info().tokenizer.empty()
            ? "no --tokenizer"
            : fmt::format("--tokenizer {}", (checkpoint->path() / "tokenizer.model").string())));
  ModelShape found = checkpoint->info().shape;
  found.dropout = options.shape.dropout;
  if (found != options.shape)
    throw Error(
        fmt::format("{} has a model of {}, but this run is asked for {}: give the same model's options",
                    checkpoint->path().string(), describe(found), describe(options.shape)));
  return checkpoint;
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
    const bool stops = any_rank_stops(role.job()), ends = stops || steps == options.steps;
    if (options.timed_block == 0 && !stops && (ends || steps % options.evaluate_every == 0))
      role.evaluate(steps - 1);
    if (!options.checkpoint.empty() && (ends || steps % options.checkpoint_every == 0))
      save(options, role, steps, ends);
    if (!stops) continue;
    role.stopped(steps, stop_signal() == SIGTERM ? "SIGTERM" : "Ctrl-C");
    return stop_code();
  }
  return 0;
}

// Names what went wrong first, where ranks were lost.
int run_and_explain(const Options& options, Results& results, Role& role, Index first_step) {
  try {
    role.timeline().keep(!options.trace.empty() || !options.report.empty());
    const int code = run(options, role, first_step);
    results.write(role);
    return code;
  } catch (const tutti::Exception&) {
    const std::string first = first_failure(role.job());
    if (first.empty()) throw;
    throw std::runtime_error(first);
  }
}

// What rank 0 tells with; nothing on others.
std::optional<Progress> make_progress(const Options& options, const Checkpoint* checkpoint, int rank) {
  if (rank != 0) return std::nullopt;
  return std::optional<Progress>(std::in_place, options, checkpoint != nullptr);
}

int work(const Options& options, Results& results, Worker& worker, ServedWorld* served,
         std::optional<Progress> progress, const Corpus& corpus, const Checkpoint* checkpoint) {
  const Index first_step = checkpoint != nullptr ? checkpoint->info().step : 0;
  if (progress) progress->start(corpus, worker, checkpoint);
  WorkerRole role(options, worker, served, progress ? &*progress : nullptr);
  return run_and_explain(options, results, role, first_step);
}

int serve(const Options& options, Results& results, ServedWorld& served, Timeline& timeline,
          const Checkpoint* checkpoint) {
  const std::vector<UnitSpec> units = model_units(options.shape);
  const std::vector<UnitLayout> layouts = layouts_of(units, {});
  ParameterServer server(served, options.learning, options.steps, options.precision, layouts, timeline);
  if (checkpoint == nullptr)
    server.start(options.seed);
  else
    server.resume(checkpoint->source(), checkpoint->info().updates);
  ServerRole role(options, served, server, timeline);
  return run_and_explain(options, results, role, checkpoint != nullptr ? checkpoint->info().step : 0);
}

}  // namespace

int train(const Options& options, const Corpus& corpus, tutti::Communicator world) {
  const std::unique_ptr<Checkpoint> checkpoint = checkpoint_of(options);
  std::optional<Progress> progress = make_progress(options, checkpoint.get(), world.rank());
  Results results(options, world.rank() == 0);
  if (options.server_mode == ServerMode::None) {
    Worker worker(options, corpus, std::move(world), checkpoint.get());
    return work(options, results, worker, nullptr, std::move(progress), corpus, checkpoint.get());
  }
  Timeline timeline;  // of a server; a worker has its own
  RankGroup job(std::move(world), "world", &timeline);
  require_agreement(options, corpus, checkpoint.get(), job);
  ServedWorld served(options.grid.ranks(), options.servers, std::move(job), timeline);
  if (served.is_server()) return serve(options, results, served, timeline, checkpoint.get());
  Worker worker(options, corpus, served, checkpoint.get());
  return work(options, results, worker, &served, std::move(progress), corpus, checkpoint.get());
}

int in_threads(int ranks, const std::function<int(tutti::Communicator)>& rank) {
  std::vector<tutti::Communicator> communicators = tutti::Communicator::local(ranks);
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr first_error;
  int code = 0;
  for (tutti::Communicator& communicator : communicators)
    threads.emplace_back([&] {
      try {
        const int own = rank(std::move(communicator));
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
