// Gemma 4's tokeniser: BPE over characters.
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/vocabulary.h"
#include "tests/support/models/vocabularies.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::small_character_bpe_vocabulary;
using test::token_id;
using ::testing::ElementsAre;

constexpr EncodeOptions kTextAlone{.add_special = false, .parse_special = false};

std::vector<std::string> spelt(const Vocabulary& vocabulary, const std::vector<TokenId>& ids) {
  std::vector<std::string> all;
  for (const TokenId id : ids)
    all.push_back(vocabulary.tokens[static_cast<size_t>(id)]);
  return all;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const TokenId id : ids)
    text += decoder.push(id);
  return text + decoder.finish();
}

/// data/character_bpe.json has the ids that the Python package tokenizers gives for a vocabulary that it trained, with the steps
/// of Gemma's tokenizer.json: tests/checks/check_tokenizers.py --write-cases --texts 120 writes it.
TEST(CharacterBpeTokenizer, GivesTheIdsOfHuggingFacesTokenizers) {
  std::ifstream file(source_path("tests/models/data/character_bpe.json"));
  const nlohmann::json data = nlohmann::json::parse(file);
  Vocabulary vocabulary;
  vocabulary.name = "character_bpe.json";
  vocabulary.model = VocabularyModel::character_bpe;
  vocabulary.tokens = data["tokens"];
  for (const int type : data["types"])
    vocabulary.types.push_back(static_cast<TokenType>(type));
  vocabulary.merges = data["merges"];
  vocabulary.unknown = token_id(vocabulary, "<unk>");
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_GT(data["cases"].size(), 100U);
  for (const nlohmann::json& one : data["cases"]) {
    const std::string text = one["text"];
    const std::vector<TokenId> ids = one["ids"];
    EXPECT_EQ(tokenizer->encode(text, kTextAlone), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids), one["decoded"].get<std::string>()) << text;
    EXPECT_EQ(streamed(*tokenizer, ids), one["decoded"].get<std::string>()) << text;
  }
}

TEST(CharacterBpeTokenizer, MergesAcrossWords) {
  const Vocabulary vocabulary = small_character_bpe_vocabulary();
  const auto tokenizer = make_tokenizer(vocabulary);
  const std::vector<TokenId> ids = tokenizer->encode("in the end  the", kTextAlone);
  EXPECT_THAT(spelt(vocabulary, ids), ElementsAre("i", "n", "▁the▁end", "▁", "▁the"));
  EXPECT_EQ(tokenizer->decode(ids), "in the end  the");
  EXPECT_EQ(tokenizer->encode("in▁the▁end  the", kTextAlone), ids) << "U+2581 is a space";
}

TEST(CharacterBpeTokenizer, LineEndsAreApartInRunsAsLongAsThereAre) {
  Vocabulary vocabulary = small_character_bpe_vocabulary();
  vocabulary.merges.insert(vocabulary.merges.begin(), "a \n");  // never applies
  test::add_token(vocabulary, "a\n", TokenType::normal);
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(spelt(vocabulary, tokenizer->encode("a\n\n\n\n\n\n\n\na\n", kTextAlone)),
              ElementsAre("a", "\n\n\n\n\n", "\n\n", "\n", "a", "\n"));
  for (const char* text : {"\n", "\n\n", "\n\n\n\n\n"})
    vocabulary.types[static_cast<size_t>(token_id(vocabulary, text))] = TokenType::control;
  vocabulary.merges.erase(vocabulary.merges.begin());
  EXPECT_THAT(spelt(vocabulary, make_tokenizer(vocabulary)->encode("a\n\n", kTextAlone)),
              ElementsAre("a", "<0x0A>", "<0x0A>"));
}

TEST(CharacterBpeTokenizer, CharactersWithoutATokenAreTheirBytes) {
  Vocabulary vocabulary = small_character_bpe_vocabulary();
  EXPECT_THAT(spelt(vocabulary, make_tokenizer(vocabulary)->encode("aéü\xFF", kTextAlone)),
              ElementsAre("aé", "<0xC3>", "<0xBC>", "<0xFF>"));
  for (const char* byte : {"<0xBC>", "<0xFF>"})
    vocabulary.types[static_cast<size_t>(token_id(vocabulary, byte))] = TokenType::control;
  EXPECT_THAT(spelt(vocabulary, make_tokenizer(vocabulary)->encode("aü\xFFüa", kTextAlone)),
              ElementsAre("a", "<unk>", "a"))
      << "all bytes of a character have a token, or none counts; a run of unknown characters is one";
  vocabulary.unknown = vocabulary.eos = token_id(vocabulary, "<turn|>");
  EXPECT_THAT(spelt(vocabulary, make_tokenizer(vocabulary)->encode("aüd", kTextAlone)), ElementsAre("a", "d"))
      << "no token that ends texts";
  vocabulary.unknown = vocabulary.eos = -1;
  EXPECT_THAT(spelt(vocabulary, make_tokenizer(vocabulary)->encode("aüd", kTextAlone)),
              ElementsAre("a", "d"));
}

TEST(CharacterBpeTokenizer, SpecialTokensAreParsedOnlyWhereAsked) {
  const Vocabulary vocabulary = small_character_bpe_vocabulary();
  const auto tokenizer = make_tokenizer(vocabulary);
  const std::string text = "<|turn>the<tool> a<turn|>";
  EXPECT_THAT(spelt(vocabulary, tokenizer->encode(text)),
              ElementsAre("<bos>", "<|turn>", "t", "he", "<tool>", "▁", "a", "<turn|>"));
  const std::vector<TokenId> plain = tokenizer->encode(text, kTextAlone);
  for (const TokenId id : plain)
    EXPECT_FALSE(tokenizer->is_control(id));
  EXPECT_EQ(std::ranges::count(plain, token_id(vocabulary, "<tool>")), 1);
  EXPECT_EQ(tokenizer->decode(plain), text);
}

TEST(CharacterBpeTokenizer, TurnsEndWithItsTokens) {
  Vocabulary vocabulary = small_character_bpe_vocabulary();
  const TokenId response = test::add_token(vocabulary, "<|tool_response>", TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  for (const TokenId id : {vocabulary.eos, token_id(vocabulary, "<turn|>"), response})
    EXPECT_TRUE(tokenizer->is_end(id)) << id;
  EXPECT_EQ(tokenizer->end_tokens().size(), 3U);
}

TEST(CharacterBpeTokenizer, MergesMayMakeUserDefinedTokensAndNoBytes) {
  Vocabulary vocabulary = small_character_bpe_vocabulary();
  vocabulary.types[static_cast<size_t>(token_id(vocabulary, "▁▁"))] = TokenType::user_defined;
  test::add_token(vocabulary, "0x41>", TokenType::normal);
  vocabulary.merges.emplace_back("< 0x41>");
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(spelt(vocabulary, tokenizer->encode("a  a", kTextAlone)), ElementsAre("a", "▁▁", "a"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("a  <0x41>", kTextAlone)), "a  <0x41>");
}

TEST(CharacterBpeTokenizer, EveryByteStringComesBack) {
  const auto tokenizer = make_tokenizer(small_character_bpe_vocabulary());
  static const char* const kParts[] = {" the", " end", "a",    "  ",    "\n",     "é",
                                       "中",   "😀",    "\xFF", "\xE4x", "<tool>", "h"};
  std::mt19937 random(13);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (size_t size = random() % 100; text.size() < size;)
      text += i % 2 == 0 ? std::string(1, static_cast<char>(random())) : kParts[random() % std::size(kParts)];
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

}  // namespace
}  // namespace minfer
