// SPDX-License-Identifier: BSD-3-Clause
#include "app/vocabulary.hpp"

#include <fmt/format.h>

#include "app/output_file.hpp"
#include "data/corpus.hpp"

namespace trainer {

void make_vocabulary(const VocabularyOptions& vocabulary, const Options& options) {
  check_held_out(options.held_out);
  const std::string text = read_text(options.data);
  OutputFile file("--output", vocabulary.output);
  const auto training = static_cast<std::size_t>(static_cast<double>(text.size()) * (1 - options.held_out));
  const std::string model = train_vocabulary(std::string_view(text).substr(0, training), vocabulary.size);
  const auto tokens = tokenizer_from(model, vocabulary.output)->encode(text);
  file.finish(model);
  fmt::print("{} pieces in {}: {} bytes are {} tokens, {:.2f} bytes each\n", vocabulary.size,
             vocabulary.output, text.size(), tokens.size(),
             static_cast<double>(text.size()) / static_cast<double>(tokens.size()));
}

}  // namespace trainer
