// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tensor.hpp"

namespace trainer {

using Token = std::uint16_t;

/// What a text is cut into. Every text can be encoded, and the texts of its tokens make it up again (with
/// SentencePiece where it is UTF-8, and U+2581, its mark for a space, becomes one).
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual Index vocabulary() const = 0;
  virtual std::vector<Token> encode(std::string_view text) const = 0;
  /// The bytes that a token stands for, which may be a part of a character.
  virtual std::string text_of(Token token) const = 0;
  /// What tokenizer_from() takes; empty for bytes.
  virtual std::string model() const = 0;
};

/// A token is a byte.
std::shared_ptr<const Tokenizer> byte_tokenizer();
/// A SentencePiece vocabulary from `model`, the content of `source`, which errors name; bytes when it is
/// empty. Throws Error when it is not one, or cannot encode every text (it needs pieces for bytes, as
/// train_vocabulary() makes).
std::shared_ptr<const Tokenizer> tokenizer_from(const std::string& model, const std::string& source);
/// The same from a file; bytes when `path` is empty.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path);

/// A SentencePiece model of `size` byte-pair pieces that are frequent in the text (Sennrich et al. 2016),
/// bytes among them. The same for the same text. Throws Error when the text has not as many.
std::string train_vocabulary(std::string_view text, Index size);

}  // namespace trainer
