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

int train(const Options& options, Worker& worker, Index first_step, Progress* progress) {
  constexpr Index kHeldOutSamples = 32;
  const CheckpointWriter writer(options.checkpoint, options.keep);
  for (Index step = first_step; step < options.steps; ++step) {
    const Worker::StepResult result = worker.step(step);
    if (progress) progress->step(step, result);
    const Index steps = step + 1;
    const bool stops = worker.any_rank(stop_signal != 0), ends = stops || steps == options.steps;
    if (options.timed_block == 0 && !stops && (ends || steps % options.evaluate_every == 0)) {
      const double loss = worker.held_out_loss(kHeldOutSamples);
      if (progress) progress->held_out(step, loss);
    }
    if (!options.checkpoint.empty() && (ends || steps % options.checkpoint_every == 0)) {
      const std::string trouble = worker.save(writer, steps);
      if (ends && !trouble.empty()) throw Error(fmt::format("no checkpoint of step {}: {}", steps, trouble));
      if (progress) progress->saved(steps, trouble);
    }
    if (stops) {
      if (progress)
        fmt::print("stopped after step {} by {}\n", steps, stop_signal == SIGTERM ? "SIGTERM" : "Ctrl-C");
      return 128 + (stop_signal == SIGTERM ? SIGTERM : SIGINT);
    }
  }
  return 0;
}

}  // namespace

void stop_on_signals() {
  for (int signal : {SIGINT, SIGTERM}) std::signal(signal, on_signal);
}

int train(const Options& options, const Corpus& corpus, tutti::Communicator world) {
  const std::unique_ptr<Checkpoint> checkpoint = checkpoint_of(options);
  const Index first_step = checkpoint ? checkpoint->info().step : 0;
  std::optional<Progress> progress;
  if (world.rank() == 0) progress.emplace(options, checkpoint != nullptr);
  Worker worker(options, corpus, std::move(world), checkpoint.get());
  if (progress) progress->start(corpus, worker, first_step);
  if (progress && checkpoint)
    fmt::print("going on from {}, written by {}\n", checkpoint->path().string(), checkpoint->info().layout);

  try {
    return train(options, worker, first_step, progress ? &*progress : nullptr);
  } catch (const tutti::Exception& error) {
    const std::string first = worker.first_failure();
    if (first.empty()) throw;
    throw std::runtime_error(first);
  }
}

int train_in_threads(const Options& options, const Corpus& corpus) {
  std::vector<tutti::Communicator> communicators = tutti::Communicator::local(options.grid.ranks());
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
