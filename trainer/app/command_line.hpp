// SPDX-License-Identifier: BSD-3-Clause
//
// The room of what a person types and sees.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>

#include "app/generate.hpp"
#include "app/scaling.hpp"
#include "app/vocabulary.hpp"
#include "options.hpp"

namespace trainer {

/// What was typed: options as they are, and those that are still names.
struct CommandLine {
  Options options;
  GenerateOptions generate;
  ScalingOptions scaling;
  VocabularyOptions vocabulary;
  /// `tutti-train generate`, `scaling` or `tokenizer`, in place of training.
  bool generates = false, scales = false, makes_vocabulary = false;
  std::string preset = "tiny", precision = "fp32", schedule = "1f1b", compute = "full", servers;
  int zero = 0;
  std::optional<Index> steps;
  bool untied = false;
  Index layers = 0, width = 0, heads = 0, context = 0;
};

/// Both must outlive the parsing. Throws what CLI11 throws.
void add_options(CLI::App& app, CommandLine& line);
/// Makes options of names; throws Error for one that is not known. Checks no more than that.
void finish(CommandLine& line);

}  // namespace trainer
