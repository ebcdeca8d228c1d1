// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

#include "model/tensor.hpp"

namespace trainer {

struct GenerateOptions {
  std::string checkpoint;
  std::string prompt = "\n";
  Index tokens = 200;
  double temperature = 0.8;
  Index top_k = 0;
  std::uint64_t seed = 1;
};

/// Writes the prompt and what the model makes follow it to standard output, token by token. Throws Error.
void generate(const GenerateOptions& options);

}  // namespace trainer
