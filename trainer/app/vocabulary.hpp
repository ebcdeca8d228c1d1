// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <string>

#include "options.hpp"

namespace trainer {

struct VocabularyOptions {
  Index size = 1024;
  std::string output;
};

/// Writes a SentencePiece model made from the training share of options.data, and says how it cuts that text.
/// Throws Error.
void make_vocabulary(const VocabularyOptions& vocabulary, const Options& options);

}  // namespace trainer
