// SPDX-License-Identifier: BSD-3-Clause
//
// The room of the data: text files, tokens, and which of them make up a batch.
#pragma once
#include <string>
#include <vector>

#include "data/tokenizer.hpp"

namespace trainer {

/// The files' text, one after another. Throws Error that names the file which is missing, unreadable or
/// empty.
std::string read_text(const std::vector<std::string>& files);

/// Tokens of a text, the last part held out from training.
class Corpus {
 public:
  /// Throws Error when a part is too short for one sample of `context` tokens and its targets.
  Corpus(const std::string& text, const Tokenizer& tokenizer, Index context, double held_out);

  struct Sample {
    const Token* tokens;  ///< context of them; the targets start one further
  };
  /// Training sample `number`: a stretch of the text that depends on seed and number alone.
  Sample training(std::uint64_t seed, Index number) const;
  /// Held-out samples lie side by side.
  Index held_out_samples() const { return (static_cast<Index>(held_out_.size()) - 1) / context_; }
  Sample held_out(Index number) const { return {held_out_.data() + number * context_}; }

  Index training_tokens() const { return static_cast<Index>(training_.size()); }
  /// Entropy in nats of a token that is drawn without regard to its neighbours: what a model must beat.
  double unigram_entropy() const;
  /// In the mean of the text: losses of different tokenizers are comparable by the byte.
  double bytes_a_token() const { return bytes_a_token_; }

 private:
  Index context_;
  Index vocabulary_;
  double bytes_a_token_;
  std::vector<Token> training_, held_out_;
};

}  // namespace trainer
