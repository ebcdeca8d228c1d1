// SPDX-License-Identifier: BSD-3-Clause
#include "app/progress.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

namespace trainer {

Progress::Progress(const Options& options, bool goes_on) : options_(options) {
  if (options.metrics.empty()) return;
  metrics_.open(options.metrics, goes_on ? std::ios::app : std::ios::trunc);
  require_metrics();
}

void Progress::start(const Corpus& corpus, const Worker& worker, const Checkpoint* checkpoint) {
  history_.unigram_entropy = corpus.unigram_entropy();
  bytes_a_token_ = corpus.bytes_a_token();
  fmt::print(
      "{} parameters ({}), {}, {} training tokens\n"
      "{}, {} samples a step; a token without its neighbours has {:.3f} nats\n",
      parameter_count(worker.units()), describe(options_.shape), name_of(options_.precision),
      corpus.training_tokens(), describe_layout(options_), options_.batch, history_.unigram_entropy);
  if (checkpoint != nullptr) tell_checkpoint(*checkpoint);
  std::fflush(stdout);
}

void Progress::tell_checkpoint(const Checkpoint& checkpoint) const {
  const CheckpointInfo &then = checkpoint.info(), now = checkpoint_info(options_, then.step, then.updates);
  fmt::print("going on from {}, written by {}\n", checkpoint.path().string(), then.layout);
  if (then.seed != now.seed || then.batch != now.batch || then.data != now.data)
    fmt::print(stderr,
               "tutti-train: note: it was trained with --seed {} --batch {} --data {}: from here on the text "
               "comes in "
               "another order\n",
               then.seed, then.batch, then.data);
}

void Progress::step(Index step, const Worker::StepResult& result) {
  if (history_.steps.empty()) first_step_ = step;
  seconds_ += result.seconds;
  history_.steps.push_back(
      {step + 1, result.loss, result.gradient_norm, result.seconds, result.blocked_seconds, result.bubble});
  shown_.take(result);
  const bool shows =
      (step + 1) % options_.log_every == 0 || step == first_step_ || step + 1 == options_.steps;
  if (shows) print_step(step, result);
  write({{"step", step + 1},
         {"loss", result.loss},
         {"gradient_norm", result.gradient_norm},
         {"rate", result.rate},
         {"skipped", result.skipped},
         {"seconds", result.seconds},
         {"blocked_seconds", result.blocked_seconds},
         {"bubble", result.bubble},
         {"tokens_per_second", tokens_a_step() / result.seconds}});
}

void Progress::Shown::take(const Worker::StepResult& result) {
  ++steps;
  loss += result.loss;
  seconds += result.seconds;
  blocked += result.blocked_seconds;
  skipped += result.skipped;
}

double Progress::tokens_a_step() const {
  return static_cast<double>(options_.batch * options_.shape.context);
}

// What is told of several steps is their mean.
void Progress::print_step(Index step, const Worker::StepResult& last) {
  const double left =
      seconds_ / static_cast<double>(step + 1 - first_step_) * static_cast<double>(options_.steps - step - 1);
  const std::string learned =
      options_.timed_block > 0
          ? "(waits in place of computing)"
          : fmt::format("loss {:.4f}  norm {:.3f}", shown_.loss / static_cast<double>(shown_.steps),
                        last.gradient_norm);
  const std::string skipped =
      shown_.skipped == 0
          ? ""
          : fmt::format("  {} skipped: gradients overflowed, loss scale halved", shown_.skipped);
  fmt::print("step {:>5}/{}  {}  rate {:.2e}  {:>7.0f} tokens/s  waiting {:>3.0f} %{}  {:>4.0f} s left{}\n",
             step + 1, options_.steps, learned, last.rate,
             static_cast<double>(shown_.steps) * tokens_a_step() / shown_.seconds,
             100 * shown_.blocked / shown_.seconds, particulars(last), left, skipped);
  std::fflush(stdout);
  shown_ = {};
}

void Progress::held_out(Index step, double loss) {
  history_.held_out.push_back({step + 1, loss});
  fmt::print("held-out loss {:.4f}{}\n", loss,
             bytes_a_token_ == 1 ? "" : fmt::format("  ({:.4f} a byte)", loss / bytes_a_token_));
  std::fflush(stdout);
  write({{"step", step + 1}, {"held_out_loss", loss}});
}

void Progress::staleness(const ParameterServer::Staleness& counts) {
  double all = 0, sum = 0;
  std::string table;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    all += counts[i];
    sum += static_cast<double>(i) * counts[i];
    if (counts[i] > 0)
      table += fmt::format("  {:>6.0f} pushes were {}{} updates old\n", counts[i], i,
                           i + 1 == counts.size() ? " or more" : "");
  }
  if (all == 0) return;
  fmt::print("staleness: {:.2f} updates in the mean\n{}", sum / all, table);
  write({{"staleness", counts}});
}

void Progress::saved(Index steps, const std::string& trouble) {
  if (trouble.empty())
    fmt::print("checkpoint of step {} in {}\n", steps, options_.checkpoint);
  else
    fmt::print(stderr, "tutti-train: no checkpoint of step {}: {}; training goes on, earlier ones stay\n",
               steps, trouble);
  std::fflush(stdout);
}

void Progress::stopped(Index steps, const char* by) {
  fmt::print("stopped after step {} by {}\n", steps, by);
  std::fflush(stdout);
}

void Progress::ranks(const std::vector<Measurement>& measurements) {
  for (std::size_t r = 0; r < measurements.size(); ++r)
    write_line(to_json_line(measurements[r], static_cast<int>(r)));
}

std::string Progress::particulars(const Worker::StepResult& result) const {
  if (options_.server_mode == ServerMode::Asynchronous)
    return fmt::format("  staleness {:.1f}", result.staleness);
  const PipelineShape& pipeline = options_.grid.pipeline;
  if (pipeline.stages == 1) return "";
  return fmt::format("  bubble {:.1f} % (formula {:.1f})", 100 * result.bubble,
                     100 * bubble_share(pipeline, options_.micro_batches()));
}

void Progress::require_metrics() const {
  if (!metrics_)
    throw Error(fmt::format("cannot write --metrics {}: {}", options_.metrics, std::strerror(errno)));
}

void Progress::write(const nlohmann::json& object) { write_line(object.dump()); }

void Progress::write_line(const std::string& line) {
  if (options_.metrics.empty()) return;
  metrics_ << line << '\n' << std::flush;
  require_metrics();
}

}  // namespace trainer
