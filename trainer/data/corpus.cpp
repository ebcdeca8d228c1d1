// SPDX-License-Identifier: BSD-3-Clause
#include "data/corpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "data/files.hpp"
#include "model/random.hpp"

namespace trainer {

std::string read_text(const std::vector<std::string>& files) {
  if (files.empty()) throw Error("there is no text to train on: name files with --data FILE ...");
  std::string text;
  for (const std::string& file : files) text += read_file("--data", file);
  return text;
}

Corpus::Corpus(const std::string& text, const Tokenizer& tokenizer, Index context, double held_out)
    : context_(context), vocabulary_(tokenizer.vocabulary()) {
  const std::vector<Token> tokens = tokenizer.encode(text);
  bytes_a_token_ =
      static_cast<double>(text.size()) / static_cast<double>(std::max<std::size_t>(tokens.size(), 1));
  const auto split = static_cast<std::ptrdiff_t>(static_cast<double>(tokens.size()) * (1 - held_out));
  training_.assign(tokens.begin(), tokens.begin() + split);
  held_out_.assign(tokens.begin() + split, tokens.end());
  const auto least = static_cast<std::size_t>(context) + 1;
  for (auto [part, name] : {std::pair(&training_, "training"), std::pair(&held_out_, "held-out")})
    if (part->size() < least)
      throw Error(
          fmt::format("the {} part of the text has {} tokens, but a sample of --context {} needs {}: give "
                      "more text with --data, a smaller --context, or another --held-out (now {})",
                      name, part->size(), context, least, held_out));
}

Corpus::Sample Corpus::training(std::uint64_t seed, Index number) const {
  constexpr std::uint64_t kSampleStream = ~std::uint64_t{0};
  std::array<std::uint32_t, 4> words = philox(seed, kSampleStream, static_cast<std::uint64_t>(number));
  std::uint64_t random = std::uint64_t{words[0]} << 32 | words[1];
  return {training_.data() + random % (training_.size() - static_cast<std::size_t>(context_))};
}

double Corpus::unigram_entropy() const {
  std::vector<double> counts(static_cast<std::size_t>(vocabulary_));
  for (Token token : training_) counts[token] += 1;
  double entropy = 0;
  for (double count : counts)
    if (count > 0) entropy -= count * std::log(count / static_cast<double>(training_.size()));
  return entropy / static_cast<double>(training_.size());
}

}  // namespace trainer
