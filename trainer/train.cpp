// SPDX-License-Identifier: BSD-3-Clause
//
// `tutti-train`: the options, the ranks, and what a person sees while they train.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <tutti/world.hpp>

#include "worker.hpp"

namespace {

using namespace trainer;

constexpr const char* kExamples = R"(Examples:
  tutti-train --data book.txt --preset tiny --steps 200
      one rank, on one core
  tutti run -n 4 tutti-train --data book.txt --dp 2 --tp 2
      four processes: two copies of the model, each cut in two
  tutti-train --threads --data *.txt --dp 2 --zero 3 --precision bf16
      two ranks in this process, all model states shared out between them
)";

struct Texts {
  std::string preset = "tiny", precision = "fp32", schedule = "1f1b", compute = "full";
  int zero = 0;
  bool untied = false;
  Index layers = 0, width = 0, heads = 0, context = 0;
};

void add_options(CLI::App& app, Options& o, Texts& t) {
  app.add_option("--data", o.data, "Text files to train on")->required()->group("Data");
  app.add_option("--held-out", o.held_out, "Share of the text that is kept for measuring")
      ->capture_default_str()
      ->group("Data");

  app.add_option("--preset", t.preset, "tiny (0.9 M parameters), small (11 M) or medium (25 M)")
      ->capture_default_str()
      ->group("Model");
  app.add_option("--layers", t.layers, "Blocks; this and the next three default to the preset's")
      ->group("Model");
  app.add_option("--width", t.width, "Width of the residual stream")->group("Model");
  app.add_option("--heads", t.heads, "Attention heads of a block")->group("Model");
  app.add_option("--context", t.context, "Tokens of a sample")->group("Model");
  app.add_option("--dropout", o.shape.dropout,
                 "Share of activations dropped after embeddings and in residual branches")
      ->capture_default_str()
      ->group("Model");
  app.add_flag("--untied", t.untied, "Give the head a matrix of its own instead of the token embedding")
      ->group("Model");
  app.add_option("--precision", t.precision,
                 "fp32; bf16 or fp16: weights, activations and gradients in 16 bits, optimizer states in 32")
      ->capture_default_str()
      ->group("Model");
  app.add_option("--seed", o.seed, "Of start weights, order of the data, and dropout")
      ->capture_default_str()
      ->group("Model");

  app.add_option("--dp", o.grid.data, "Data parallel: ranks that share out the batch")
      ->capture_default_str()
      ->group("Layout");
  app.add_option("--tp", o.grid.tensor, "Tensor parallel: ranks that share every layer")
      ->capture_default_str()
      ->group("Layout");
  app.add_option("--pp", o.grid.pipeline.stages,
                 "Pipeline parallel: ranks that a sample goes through in turn")
      ->capture_default_str()
      ->group("Layout");
  app.add_option(
         "--schedule", t.schedule,
         "Of the pipeline: gpipe, 1f1b, or interleaved (1f1b with several --chunks of the model on each "
         "stage). A step needs several micro-batches, see --micro-batch")
      ->capture_default_str()
      ->group("Layout");
  app.add_option("--chunks", o.grid.pipeline.chunks, "Chunks of a stage, with --schedule interleaved")
      ->capture_default_str()
      ->group("Layout");
  app.add_flag("--sequence-parallel", o.sequence_parallel,
               "Tensor-parallel ranks share the tokens between layers, too")
      ->group("Layout");
  app.add_option("--zero", t.zero,
                 "Data-parallel ranks share: 1 optimizer states, 2 gradients too, 3 parameters too")
      ->check(CLI::Range(0, 3))
      ->capture_default_str()
      ->group("Layout");
  app.add_option("--bucket-bytes", o.bucket_bytes, "Gradients that are reduced together")
      ->capture_default_str()
      ->group("Layout");
  app.add_flag("--recompute", o.recompute,
               "Keep the input of each block only, and compute the rest again when it is needed")
      ->group("Layout");
  app.add_option(
         "--compute", t.compute,
         "full, or timed:MS: wait MS milliseconds / --tp for a block's forward pass and twice that for its "
         "backward pass in place of computing, to study schedules with more ranks than cores")
      ->capture_default_str()
      ->group("Layout");
  app.add_flag("--threads", o.threads, "Run all ranks as threads of this process")->group("Layout");

  app.add_option("--steps", o.steps, "Updates to make")->capture_default_str()->group("Training");
  app.add_option("--batch", o.batch, "Samples of a step, over all ranks")
      ->capture_default_str()
      ->group("Training");
  app.add_option(
         "--micro-batch", o.micro_batch,
         "Samples computed at once; gradients of a step's micro-batches are accumulated (0: one micro-batch)")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--rate", o.learning.rate, "Highest learning rate of AdamW")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--least-rate", o.learning.least_rate, "Rate at the last step, after half a cosine")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--warm-up", o.learning.warm_up, "Steps of rising rate")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--decay", o.learning.decay, "Weight decay of matrices")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--clip", o.learning.clip, "Largest norm of the whole gradient; 0: no clipping")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--evaluate-every", o.evaluate_every, "Steps between measurements of the held-out loss")
      ->capture_default_str()
      ->group("Training");
  app.add_option("--metrics", o.metrics, "File to write: a JSON object a step, a line each")
      ->group("Results");
  app.footer(kExamples);
}

// Seconds of "full" or "timed:MS".
double timed_block_from(const std::string& text) {
  if (text == "full") return 0;
  const std::string prefix = "timed:";
  std::size_t used = 0;
  double milliseconds = 0;
  try {
    if (text.starts_with(prefix)) milliseconds = std::stod(text.substr(prefix.size()), &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || prefix.size() + used != text.size() || !(milliseconds > 0))
    throw Error(
        fmt::format("--compute {} is not known: choose full or timed:MS, with milliseconds above 0", text));
  return milliseconds / 1e3;
}

void finish(Options& o, const Texts& t) {
  float dropout = o.shape.dropout;
  o.shape = preset(t.preset);
  o.shape.dropout = dropout;
  o.shape.tied = !t.untied;
  if (t.layers != 0) o.shape.layers = t.layers;
  if (t.width != 0) o.shape.width = t.width;
  if (t.heads != 0) o.shape.heads = t.heads;
  if (t.context != 0) o.shape.context = t.context;
  o.precision = type_from(t.precision);
  o.grid.pipeline.schedule = pipeline_schedule_from(t.schedule);
  o.timed_block = timed_block_from(t.compute) / std::max(1, o.grid.tensor);
  o.zero = static_cast<ZeroStage>(t.zero);
}

// What rank 0 tells of the run: lines for people, and objects for programs.
class Progress {
 public:
  Progress(const Options& options, const Corpus& corpus, const Worker& worker) : options_(options) {
    if (!options.metrics.empty()) {
      metrics_.open(options.metrics);
      require_metrics();
    }
    fmt::print(
        "{} parameters ({} layers, width {}, {} heads, context {}), {}, {} training tokens\n"
        "{}, {} samples a step; a token without its neighbours has {:.3f} nats\n",
        parameter_count(worker.units()), options.shape.layers, options.shape.width, options.shape.heads,
        options.shape.context, name_of(options.precision), corpus.training_tokens(), describe_layout(options),
        options.batch, corpus.unigram_entropy());
  }

  void step(Index step, const Worker::StepResult& result) {
    seconds_ += result.seconds;
    double left = seconds_ / static_cast<double>(step + 1) * static_cast<double>(options_.steps - step - 1);
    double tokens_per_second = static_cast<double>(options_.batch * options_.shape.context) / result.seconds;
    fmt::print("step {:>5}/{}  {}  rate {:.2e}  {:>7.0f} tokens/s  waiting {:>3.0f} %{}  {:>4.0f} s left{}\n",
               step + 1, options_.steps, learned(result), result.rate, tokens_per_second,
               100 * result.blocked_seconds / result.seconds, bubble(result), left,
               result.skipped ? "  skipped: gradients overflowed, loss scale halved" : "");
    std::fflush(stdout);
    write({{"step", step + 1},
           {"loss", result.loss},
           {"gradient_norm", result.gradient_norm},
           {"rate", result.rate},
           {"skipped", result.skipped},
           {"seconds", result.seconds},
           {"blocked_seconds", result.blocked_seconds},
           {"bubble", result.bubble},
           {"tokens_per_second", tokens_per_second}});
  }

  void held_out(Index step, double loss) {
    fmt::print("held-out loss {:.4f}\n", loss);
    std::fflush(stdout);
    write({{"step", step + 1}, {"held_out_loss", loss}});
  }

 private:
  std::string learned(const Worker::StepResult& result) const {
    if (options_.timed_block > 0) return "(waits in place of computing)";
    return fmt::format("loss {:.4f}  norm {:.3f}", result.loss, result.gradient_norm);
  }
  std::string bubble(const Worker::StepResult& result) const {
    const PipelineShape& pipeline = options_.grid.pipeline;
    if (pipeline.stages == 1) return "";
    return fmt::format("  bubble {:.1f} % (formula {:.1f})", 100 * result.bubble,
                       100 * bubble_share(pipeline, options_.micro_batches()));
  }
  void require_metrics() const {
    if (!metrics_)
      throw Error(fmt::format("cannot write --metrics {}: {}", options_.metrics, std::strerror(errno)));
  }
  void write(const nlohmann::json& object) {
    if (options_.metrics.empty()) return;
    metrics_ << object.dump() << '\n' << std::flush;
    require_metrics();
  }

  const Options& options_;
  std::ofstream metrics_;
  double seconds_ = 0;
};

void train(const Options& options, const Corpus& corpus, tutti::Communicator world) {
  constexpr Index kHeldOutSamples = 32;
  Worker worker(options, corpus, std::move(world));
  std::optional<Progress> progress;
  if (worker.grid().world.rank() == 0) progress.emplace(options, corpus, worker);
  for (Index step = 0; step < options.steps; ++step) {
    Worker::StepResult result = worker.step(step);
    if (progress) progress->step(step, result);
    if (options.timed_block > 0) continue;
    if ((step + 1) % options.evaluate_every == 0 || step + 1 == options.steps) {
      double loss = worker.held_out_loss(kHeldOutSamples);
      if (progress) progress->held_out(step, loss);
    }
  }
}

void train_in_threads(const Options& options, const Corpus& corpus) {
  std::vector<tutti::Communicator> communicators = tutti::Communicator::local(options.grid.ranks());
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::exception_ptr first_error;
  for (tutti::Communicator& communicator : communicators)
    threads.emplace_back([&] {
      try {
        train(options, corpus, std::move(communicator));
      } catch (...) {
        std::lock_guard lock(mutex);
        if (!first_error) first_error = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a small GPT on text, with the strategies of distributed training side by side"};
  Options options;
  Texts texts;
  add_options(app, options, texts);
  try {
    app.parse(argc, argv);
    finish(options, texts);
    tutti::World world = tutti::World::from_environment();
    if (options.threads && world.size() > 1)
      throw Error(
          "--threads runs all ranks in one process, but this job has several: leave out one of the two");
    check(options, options.threads ? options.grid.ranks() : world.size());
    Corpus corpus(read_text(options.data), options.shape.context, options.held_out);
    if (options.threads)
      train_in_threads(options, corpus);
    else
      train(options, corpus, world.communicator());
    return 0;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    fmt::print(stderr, "tutti-train: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "tutti-train: {}\n", error.what());
    return 1;
  }
}
