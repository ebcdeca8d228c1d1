// SPDX-License-Identifier: BSD-3-Clause
#include "app/command_line.hpp"

#include <fmt/format.h>

namespace trainer {

namespace {

constexpr const char* kExamples = R"(Examples:
  tutti-train --data book.txt --preset tiny --steps 200
      one rank, on one core
  tutti run -n 4 tutti-train --data book.txt --dp 2 --tp 2
      four processes: two copies of the model, each cut in two
  tutti-train --threads --data *.txt --dp 2 --zero 3 --precision bf16
      two ranks in this process, all model states shared out between them
  tutti-train --data book.txt --preset small --steps 2000 --checkpoint run --resume
      goes on where it was stopped
)";

void add_training_options(CLI::App& app, CommandLine& t) {
  Options& o = t.options;
  app.add_option("--data", o.data, "Text files to train on")->group("Data");
  app.add_option(
         "--tokenizer", o.tokenizer_file,
         "SentencePiece model that cuts the text into tokens, see `tutti-train tokenizer`; else bytes")
      ->group("Data");
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
  app.add_option(
         "--ps", t.servers,
         "Parameter servers update the weights: sync, with all workers' gradients at once, or async, with "
         "each worker's when it comes. The --dp workers are the first ranks, the servers the last")
      ->group("Layout");
  app.add_option("--servers", o.servers, "Ranks that serve, with --ps")
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

  app.add_option("--steps", t.steps, "Updates to make; 100 by default")->group("Training");
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
  app.add_option("--log-every", o.log_every, "Steps that a line on standard output tells of, in the mean")
      ->capture_default_str()
      ->group("Results");
  app.add_option("--metrics", o.metrics,
                 "File to write: a JSON object a step and, at the end, a rank; a line each")
      ->group("Results");
  app.add_option("--report", o.report,
                 "Folder to write index.html in at the end: loss, a step of every rank, memory and messages "
                 "beside their formulas")
      ->group("Results");
  app.add_option(
         "--trace", o.trace,
         "File to write at the end: what every rank did when, in the Chrome trace format, which opens in "
         "https://ui.perfetto.dev")
      ->group("Results");
  app.add_option("--checkpoint", o.checkpoint, "Folder to save weights and optimizer states in")
      ->group("Checkpoints");
  app.add_option("--checkpoint-every", o.checkpoint_every,
                 "Steps between two checkpoints; there is one at the end and on Ctrl-C, too")
      ->capture_default_str()
      ->group("Checkpoints");
  app.add_option("--keep", o.keep, "Newest checkpoints that stay; older ones are removed")
      ->capture_default_str()
      ->group("Checkpoints");
  app.add_flag("--resume", o.resume,
               "Go on from the newest checkpoint of the folder, in this layout or any other; begin where "
               "there is none")
      ->group("Checkpoints");
}

void add_generate(CLI::App& app, CommandLine& line) {
  GenerateOptions& o = line.generate;
  CLI::App* command = app.add_subcommand("generate", "Writes text with a trained model");
  command->add_option("--checkpoint", o.checkpoint, "Folder that training saved in, or one checkpoint of it")
      ->required();
  command->add_option("--prompt", o.prompt, "Text to go on from")->capture_default_str();
  command->add_option("--tokens", o.tokens, "Tokens to write")->capture_default_str();
  command->add_option("--temperature", o.temperature, "Below 1: likelier tokens; 0: the likeliest alone")
      ->capture_default_str();
  command->add_option("--top-k", o.top_k, "Choose among so many likeliest tokens; 0: among all")
      ->capture_default_str();
  command->add_option("--seed", o.seed, "Of the choices")->capture_default_str();
  command->footer(
      "Example:\n  tutti-train generate --checkpoint run --prompt \"Computers are\" --tokens 300");
  command->callback([&] { line.generates = true; });
}

void add_vocabulary(CLI::App& app, CommandLine& line) {
  VocabularyOptions& o = line.vocabulary;
  CLI::App* command = app.add_subcommand(
      "tokenizer",
      "Makes a vocabulary of byte pairs from the --data (without its --held-out share), with SentencePiece");
  command->add_option("--vocabulary", o.size, "Pieces in it, 256 bytes among them")->capture_default_str();
  command->add_option("--output", o.output, "File to write")->required();
  command->fallthrough();
  command->footer(
      "Example:\n"
      "  tutti-train tokenizer --data book.txt --vocabulary 1024 --output book.model\n"
      "  tutti-train --data book.txt --tokenizer book.model");
  command->callback([&] { line.makes_vocabulary = true; });
}

void add_scaling(CLI::App& app, CommandLine& line) {
  ScalingOptions& o = line.scaling;
  CLI::App* command = app.add_subcommand(
      "scaling",
      "Measures how the same training gets faster with more ranks: speed-up, efficiency, Karp-Flatt's "
      "serial fraction, Amdahl's fit, communication and imbalance");
  command->add_option("--ranks", o.ranks, "Numbers of ranks, from 1 up")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--along", o.along, "What the ranks are used for: dp, tp or pp")->capture_default_str();
  command->add_option("--rounds", o.rounds, "Times to go through all numbers of ranks")
      ->capture_default_str();
  // All options of training say what is trained.
  command->fallthrough();
  command->footer(
      "All options of training say what is trained; --steps (default 20), --report and --metrics are "
      "scaling's.\n"
      "Ranks are threads of this process, or of a job the first of its processes.\n"
      "Examples:\n"
      "  tutti-train scaling --ranks 1,2,4 --data book.txt --batch 16 --report scaling\n"
      "  tutti run -n 4 tutti-train scaling --ranks 1,2,4 --along tp --data book.txt");
  command->callback([&] { line.scales = true; });
}

}  // namespace

void add_options(CLI::App& app, CommandLine& line) {
  add_training_options(app, line);
  add_generate(app, line);
  add_scaling(app, line);
  add_vocabulary(app, line);
  app.footer(kExamples);
}

namespace {

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

}  // namespace

void finish(CommandLine& t) {
  Options& o = t.options;
  float dropout = o.shape.dropout;
  o.shape = preset(t.preset);
  o.shape.dropout = dropout;
  o.shape.tied = !t.untied;
  if (t.layers != 0) o.shape.layers = t.layers;
  if (t.width != 0) o.shape.width = t.width;
  if (t.heads != 0) o.shape.heads = t.heads;
  if (t.context != 0) o.shape.context = t.context;
  o.tokenizer = load_tokenizer(o.tokenizer_file);
  o.shape.vocabulary = o.tokenizer->vocabulary();
  o.precision = type_from(t.precision);
  if (!t.servers.empty()) o.server_mode = server_mode_from(t.servers);
  o.grid.pipeline.schedule = pipeline_schedule_from(t.schedule);
  o.timed_block = timed_block_from(t.compute) / std::max(1, o.grid.tensor);
  o.zero = static_cast<ZeroStage>(t.zero);
  o.steps = t.steps.value_or(t.scales ? 20 : 100);
}

}  // namespace trainer
