// SPDX-License-Identifier: BSD-3-Clause
#include <cmath>
#include <fstream>

#include "data/corpus.hpp"
#include "support/catch.hpp"
#include "trainer/refusal.hpp"

using namespace trainer;

namespace {

std::string some_text() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += "The quick brown fox jumps over the lazy dog, time and again.\n\tIndented   lines, too;\n\n";
  return text;
}

std::string again(const Tokenizer& tokenizer, const std::string& text) {
  std::string result;
  for (Token token : tokenizer.encode(text)) result += tokenizer.text_of(token);
  return result;
}

}  // namespace

TEST_CASE("the tokens of a text make it up again") {
  const std::string model = train_vocabulary(some_text(), 350);
  const auto tokenizer = GENERATE_COPY(byte_tokenizer(), tokenizer_from(model, "made here"));
  for (const std::string& text :
       {some_text(), std::string("no end of line"), std::string(" \n  two spaces \n\n"),
        std::string("\r\n\ttabs\x01\x7f"), std::string("Größe, 漢字, \xf0\x9f\x98\x80"),
        std::string("never seen: QZ#@~"), std::string()})
    CHECK(again(*tokenizer, text) == text);
}

TEST_CASE("a vocabulary has as many pieces as asked for, is the same each time, and makes texts shorter") {
  const std::string text = some_text(), model = train_vocabulary(text, 350);
  CHECK(train_vocabulary(text, 350) == model);
  const auto tokenizer = tokenizer_from(model, "made here");
  CHECK(tokenizer->vocabulary() == 350);
  CHECK(tokenizer->model() == model);
  CHECK(tokenizer->encode(text).size() * 2 < text.size());
  for (Token token : tokenizer->encode(text)) CHECK(token < 350);
  const Corpus corpus(text, *tokenizer, 16, 0.1);
  CHECK(corpus.bytes_a_token() > 2);
  CHECK(corpus.unigram_entropy() < std::log(350));
  CHECK(corpus.unigram_entropy() > 1);
}

TEST_CASE("what is no vocabulary is refused with a sentence that says why") {
  CHECK(says(refusal([] { train_vocabulary(some_text(), 100); }),
             {"--vocabulary is 100, but must lie between 258"}));
  CHECK(says(refusal([] { train_vocabulary(some_text(), 60000); }), {"no vocabulary of 60000 pieces"}));
  CHECK(says(refusal([] { tokenizer_from("rubbish", "there"); }),
             {"--tokenizer there is no SentencePiece model"}));
  CHECK(says(refusal([] { load_tokenizer("/nowhere/at/all"); }),
             {"cannot read --tokenizer /nowhere/at/all: No such"}));
  CHECK(says(refusal([] { load_tokenizer("/"); }), {"is a folder"}));
  CHECK(says(refusal([] { load_tokenizer("/dev/null"); }), {"is empty"}));
}
