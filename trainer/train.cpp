// SPDX-License-Identifier: BSD-3-Clause
//
// `tutti-train`: the program around the trainer's library.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <tutti/world.hpp>

#include "app/command_line.hpp"
#include "app/stop.hpp"
#include "app/training.hpp"

namespace {

using namespace trainer;

int run(const CommandLine& line) {
  const tutti::World world = tutti::World::from_environment();
  const Options& options = line.options;
  if (line.generates) {
    if (world.size() > 1) throw Error("generate runs as one process, but this job has several");
    generate(line.generate);
    return 0;
  }
  if (line.makes_vocabulary) {
    if (world.size() > 1) throw Error("tokenizer runs as one process, but this job has several");
    make_vocabulary(line.vocabulary, options);
    return 0;
  }
  if (options.threads && world.size() > 1)
    throw Error(
        "--threads runs all ranks in one process, but this job has several: leave out one of the two");
  const bool threads = options.threads || (line.scales && world.size() == 1);
  const int asked = line.scales ? line.scaling.most() : options.ranks(),
            ranks = threads ? asked : world.size();
  if (line.scales)
    check(line.scaling, options, ranks);
  else
    check(options, ranks);
  const Corpus corpus(read_text(options.data), *options.tokenizer, options.shape.context, options.held_out);
  stop_on_signals();
  auto rank = [&](tutti::Communicator communicator) {
    return line.scales ? measure_scaling(line.scaling, options, corpus, std::move(communicator))
                       : train(options, corpus, std::move(communicator));
  };
  return threads ? in_threads(ranks, rank) : rank(world.communicator());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a small GPT on text, with the strategies of distributed training side by side"};
  CommandLine line;
  add_options(app, line);
  try {
    app.parse(argc, argv);
    finish(line);
    line.options.command = fmt::format("{}", fmt::join(argv, argv + argc, " "));
    return run(line);
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
