// SPDX-License-Identifier: BSD-3-Clause
#include "data/tokenizer.hpp"

#include <fmt/format.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>

#include "data/files.hpp"

namespace trainer {

namespace {

constexpr Index kMostPieces = 65536;
constexpr std::string_view kSpace = "\xe2\x96\x81";  // how SentencePiece writes one

// Text line by line, each with its end.
template <class F>
void for_each_line(std::string_view text, F f) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
    f(text.substr(0, end));
    text.remove_prefix(end);
  }
}

class Bytes : public Tokenizer {
 public:
  Index vocabulary() const override { return 256; }
  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> tokens;
    tokens.reserve(text.size());
    for (char c : text) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
  }
  std::string text_of(Token token) const override { return std::string(1, static_cast<char>(token)); }
  std::string model() const override { return ""; }
};

class Pieces : public Tokenizer {
 public:
  Pieces(const std::string& model, const std::string& source) : model_(model) {
    if (!processor_.LoadFromSerializedProto(model).ok())
      throw Error(fmt::format(
          "--tokenizer {} is no SentencePiece model: make one with `tutti-train tokenizer`", source));
    const int pieces = processor_.GetPieceSize();
    if (pieces > kMostPieces)
      throw Error(fmt::format("--tokenizer {} has {} pieces, but at most {} are supported", source, pieces,
                              kMostPieces));
    Index bytes = 0;
    for (int id = 0; id < pieces; ++id) {
      texts_.push_back(text_from(id));
      bytes += processor_.IsByte(id);
    }
    if (bytes != 256)
      throw Error(
          fmt::format("--tokenizer {} has no pieces for single bytes, so that some texts cannot be encoded: "
                      "make one with `tutti-train tokenizer`, or with --byte_fallback",
                      source));
  }

  Index vocabulary() const override { return processor_.GetPieceSize(); }
  std::vector<Token> encode(std::string_view text) const override {
    std::vector<Token> tokens;
    for_each_line(text, [&](std::string_view line) {
      for (int id : processor_.EncodeAsIds(line)) tokens.push_back(static_cast<Token>(id));
    });
    return tokens;
  }
  std::string text_of(Token token) const override { return texts_[token]; }
  std::string model() const override { return model_; }

 private:
  std::string text_from(int id) const {
    std::string piece = processor_.IdToPiece(id);
    if (processor_.IsControl(id) || processor_.IsUnknown(id)) return "";
    if (processor_.IsByte(id))
      return std::string(1, static_cast<char>(std::stoi(piece.substr(3, 2), nullptr, 16)));  // <0x0A>
    for (std::size_t at = 0; (at = piece.find(kSpace, at)) != std::string::npos;)
      piece.replace(at, kSpace.size(), " ");
    return piece;
  }

  std::string model_;
  sentencepiece::SentencePieceProcessor processor_;
  std::vector<std::string> texts_;
};

class Lines : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(std::string_view text) {
    for_each_line(text, [&](std::string_view line) {
      if (line.ends_with('\n')) line.remove_suffix(1);
      if (!line.empty()) lines_.emplace_back(line);
    });
  }
  bool done() const override { return next_ == lines_.size(); }
  void Next() override { ++next_; }
  const std::string& value() const override { return lines_[next_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> lines_;
  std::size_t next_ = 0;
};

}  // namespace

std::shared_ptr<const Tokenizer> byte_tokenizer() { return std::make_shared<Bytes>(); }

std::shared_ptr<const Tokenizer> tokenizer_from(const std::string& model, const std::string& source) {
  if (model.empty()) return byte_tokenizer();
  return std::make_shared<Pieces>(model, source);
}

std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path) {
  if (path.empty()) return byte_tokenizer();
  return tokenizer_from(read_file("--tokenizer", path), path);
}

std::string train_vocabulary(std::string_view text, Index size) {
  constexpr Index kLeast = 258;  // bytes, the unknown piece, and one more
  if (size < kLeast || size > kMostPieces)
    throw Error(fmt::format("--vocabulary is {}, but must lie between {} and {}", size, kLeast, kMostPieces));
  Lines lines(text);
  std::string model;
  // The text as it is: no normalization, no space in front, none removed; no marks of beginning and end.
  const auto status = sentencepiece::SentencePieceTrainer::Train({{"model_type", "bpe"},
                                                                  {"vocab_size", std::to_string(size)},
                                                                  {"byte_fallback", "true"},
                                                                  {"normalization_rule_name", "identity"},
                                                                  {"add_dummy_prefix", "false"},
                                                                  {"remove_extra_whitespaces", "false"},
                                                                  {"character_coverage", "1.0"},
                                                                  {"max_sentence_length", "1000000"},
                                                                  {"bos_id", "-1"},
                                                                  {"eos_id", "-1"},
                                                                  {"minloglevel", "2"}},
                                                                 &lines, &model);
  if (!status.ok())
    throw Error(fmt::format(
        "no vocabulary of {} pieces comes from this text: choose another --vocabulary, or give more "
        "text ({})",
        size, status.ToString()));
  return model;
}

}  // namespace trainer
