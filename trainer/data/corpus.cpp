// SPDX-License-Identifier: BSD-3-Clause
#include "data/corpus.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/random.hpp"

namespace trainer {

std::string read_text(const std::vector<std::string>& files) {
  if (files.empty()) throw Error("there is no text to train on: name files with --data FILE ...");
  std::string text;
  for (const std::string& file : files) {
    if (std::filesystem::is_directory(file))
      throw Error(fmt::format("--data {} is a folder: name the files in it", file));
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw Error(fmt::format("cannot read --data {}: {}", file, std::strerror(errno)));
    std::string content((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    if (stream.bad()) throw Error(fmt::format("reading --data {} failed: {}", file, std::strerror(errno)));
    if (content.empty()) throw Error(fmt::format("--data {} is empty", file));
    text += content;
  }
  return text;
}

Corpus::Corpus(const std::string& text, Index context, double held_out) : context_(context) {
  auto split = static_cast<std::ptrdiff_t>(static_cast<double>(text.size()) * (1 - held_out));
  training_.assign(text.begin(), text.begin() + split);
  held_out_.assign(text.begin() + split, text.end());
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
  std::array<double, 256> counts{};
  for (std::uint8_t token : training_) counts[token] += 1;
  double entropy = 0;
  for (double count : counts)
    if (count > 0) entropy -= count * std::log(count / static_cast<double>(training_.size()));
  return entropy / static_cast<double>(training_.size());
}

}  // namespace trainer
