// Text to ids and back, in both families.
#include "models/tokenizer/tokenizer.h"

#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <sstream>
#include <unordered_map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/tokenizer/vocabulary.h"
#include "tests/support/allocations.h"
#include "tests/support/cpu_time.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/vocabularies.h"

namespace minfer {
namespace {

using test::small_bpe_vocabulary;
using test::small_sentencepiece_vocabulary;
using test::token_id;
using ::testing::ElementsAre;

constexpr EncodeOptions kPlain{.add_special = false, .parse_special = false};

std::vector<std::string> pieces(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> all;
  for (const TokenId id : ids)
    all.emplace_back(tokenizer.piece(id, true));
  return all;
}

std::string random_bytes(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& c : bytes)
    c = static_cast<char>(random());
  return bytes;
}

/// Words of the small vocabularies and others, with spaces, line ends and a few bytes that are not UTF-8.
std::string random_text(std::mt19937& random, size_t size) {
  static const char* const kUnits[] = {" the", " an",  "ing",   "hello", " hello", " world", "aaaa",
                                       "a",    " ",    "   ",   "é",     "中",     "\n",     "123",
                                       "😀",    "\xFF", "\xE4x", "!",     "h",      "the"};
  std::string text;
  while (text.size() < size)
    text += kUnits[random() % std::size(kUnits)];
  return text;
}

// --- fixtures ---

void check_fixture(const std::string& name) {
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures";
  const std::filesystem::path base = *fixtures / "tokenizers" / name;
  const auto tokenizer = make_tokenizer(GgufFile::open(base.string() + ".gguf"));
  std::ifstream input(base.string() + ".inp", std::ios::binary);
  std::string texts((std::istreambuf_iterator<char>(input)), {});
  std::ifstream output(base.string() + ".out");
  const std::string separator = "\n__ggml_vocab_test__\n";
  int cases = 0;
  for (size_t begin = 0; begin < texts.size(); ++cases) {  // a separator ends the last case too
    const size_t end = std::min(texts.find(separator, begin), texts.size());
    const std::string text = texts.substr(begin, end - begin);
    std::string line;
    ASSERT_TRUE(std::getline(output, line)) << "case " << cases;
    std::istringstream numbers(line);
    const std::vector<TokenId> expected((std::istream_iterator<TokenId>(numbers)), {});
    EXPECT_EQ(tokenizer->encode(text, kPlain), expected) << "case " << cases << ": " << text;
    EXPECT_EQ(tokenizer->decode(expected), text) << "case " << cases;
    begin = end + separator.size();
  }
  EXPECT_EQ(cases, 46);
}

TEST(TokenizerFixtures, LlamaSentencePiece) {
  check_fixture("llama-spm");
}
TEST(TokenizerFixtures, Gpt2) {
  check_fixture("gpt-2");
}

// --- against the definition of the merging ---

/// SentencePiece's BPE by its definition: join the best-scored pair of neighbours, the leftmost of equal
/// ones, until none can be joined.
std::vector<std::string> merge_by_scores(const Vocabulary& vocabulary,
                                         const std::vector<std::string>& characters) {
  std::unordered_map<std::string, float> scores;
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.type(id) == TokenType::normal) {
      scores[vocabulary.tokens[static_cast<size_t>(id)]] = vocabulary.scores[static_cast<size_t>(id)];
    }
  }
  std::vector<std::string> symbols = characters;
  while (true) {
    float best = -std::numeric_limits<float>::infinity();
    size_t position = symbols.size();
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = scores.find(symbols[i] + symbols[i + 1]);
      if (found != scores.end() && found->second > best) {
        best = found->second;
        position = i;
      }
    }
    if (position == symbols.size()) return symbols;
    symbols[position] += symbols[position + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(position) + 1);
  }
}

void check_against_definition(const Vocabulary& vocabulary, size_t num_characters) {
  const auto tokenizer = make_tokenizer(vocabulary);
  std::mt19937 random(3);
  const char* const kCharacters[] = {"▁", "▁", "t", "h", "e", "a", "a", "n", "i", "g"};
  std::vector<std::string> characters{"▁"};
  std::string text;
  for (size_t i = 0; i < num_characters; ++i) {
    characters.emplace_back(kCharacters[random() % std::size(kCharacters)]);
    text += characters.back() == "▁" ? " " : characters.back();
  }
  std::vector<TokenId> expected;
  for (const std::string& symbol : merge_by_scores(vocabulary, characters)) {
    expected.push_back(token_id(vocabulary, symbol));
  }
  EXPECT_EQ(tokenizer->encode(text, kPlain), expected);
}

TEST(SentencePieceTokenizer, JoinsByScores) {
  check_against_definition(small_sentencepiece_vocabulary(), 500);
}

TEST(SentencePieceTokenizer, LongTextsAreCutWhereNothingJoins) {
  check_against_definition(small_sentencepiece_vocabulary(), 4000);
}

TEST(SentencePieceTokenizer, PiecesAcrossWordsForbidThoseCuts) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  for (const char* text : {"e▁", "a▁", "n▁", "g▁", "t▁", "h▁", "i▁"}) {
    test::add_token(vocabulary, text, TokenType::normal, 1.0f);
  }
  check_against_definition(vocabulary, 4000);
}

/// A text that cannot be cut is merged as a whole.
TEST(TokenizerMemory, IsBoundedForEachByteOfATextWithoutSpaces) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  constexpr size_t kBytes = 1 << 20;
  std::mt19937 random(5);
  std::string letters(kBytes, ' ');
  for (char& c : letters)
    c = "thean"[random() % 5];
  const Vocabulary vocabularies[] = {small_sentencepiece_vocabulary(), small_bpe_vocabulary("llama-bpe"),
                                     test::small_character_bpe_vocabulary()};
  for (const Vocabulary& vocabulary : vocabularies) {
    const auto tokenizer = make_tokenizer(vocabulary);
    for (const std::string& text : {letters, std::string(kBytes, 'a')}) {
      test::reset_thread_peak();
      tokenizer->encode(text, kPlain);
      EXPECT_LE(test::thread_peak_bytes() / kBytes, 60u) << vocabulary.name;
    }
  }
}

// --- SentencePiece ---

TEST(SentencePieceTokenizer, PutsASpaceInFrontAndTakesItAway) {
  const auto tokenizer = make_tokenizer(small_sentencepiece_vocabulary());
  const std::vector<TokenId> ids = tokenizer->encode("the an");
  EXPECT_THAT(pieces(*tokenizer, ids), ElementsAre("<s>", " the", " an"));
  EXPECT_EQ(tokenizer->decode(ids), "the an");
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode(" the", kPlain)), ElementsAre(" ", " the"));
  EXPECT_TRUE(tokenizer->encode("", kPlain).empty());
}

TEST(SentencePieceTokenizer, WithoutSpacePrefixTextIsTakenAsItIs) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  vocabulary.add_space_prefix = false;
  vocabulary.add_bos = false;
  vocabulary.add_eos = true;
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("the the")), ElementsAre("the", " the", "</s>"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" the", kPlain)), " the");
}

TEST(SentencePieceTokenizer, ExtraSpacesGoOnlyWhereTheFileSaysSo) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  vocabulary.remove_extra_whitespaces = true;
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  the   an  ")), "the an");
  EXPECT_TRUE(tokenizer->encode("   ", kPlain).empty());
}

TEST(SentencePieceTokenizer, SpecialTokensAreParsedOnlyWhereAsked) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  const TokenId tool = test::add_token(vocabulary, "[tool]", TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  const std::string text = "the</s>an[tool]the";
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode(text, {.add_special = false})),
              ElementsAre(" the", "</s>", " an", "[tool]", " the"));
  const std::vector<TokenId> plain = tokenizer->encode(text, kPlain);
  EXPECT_EQ(std::ranges::count(plain, vocabulary.eos), 0);
  EXPECT_EQ(std::ranges::count(plain, tool), 1);  // user-defined tokens always count
  EXPECT_EQ(tokenizer->decode(plain), text);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {.add_special = false}), true), text);
}

TEST(SentencePieceTokenizer, PlainTextNeverBecomesAControlToken) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  for (const char* text : {"<", "s", ">", "<s", "</", "s>", "</s"}) {
    test::add_token(vocabulary, text, TokenType::normal, 1.0f);
  }
  const auto tokenizer = make_tokenizer(vocabulary);
  for (const TokenId id : tokenizer->encode("<s></s><unk>", kPlain))
    EXPECT_FALSE(tokenizer->is_control(id));
}

TEST(SentencePieceTokenizer, WithoutByteTokensARunOfUnknownCharactersIsOneUnknownToken) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  for (TokenType& type : vocabulary.types) {
    if (type == TokenType::byte) type = TokenType::control;
  }
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("the😀😀an", kPlain)), ElementsAre(" the", "<unk>", "an"));
}

TEST(SentencePieceTokenizer, EveryByteStringComesBack) {
  const auto tokenizer = make_tokenizer(small_sentencepiece_vocabulary());
  std::mt19937 random(11);
  for (int i = 0; i < 300; ++i) {
    const std::string text =
        i % 2 == 0 ? random_bytes(random, random() % 200) : random_text(random, random() % 200);
    ASSERT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  }
}

// --- byte-level BPE ---

TEST(ByteLevelBpeTokenizer, MergesWithinWords) {
  const auto tokenizer = make_tokenizer(small_bpe_vocabulary());
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("hello hello world  aaaaa")),
              ElementsAre("hello", " hello", " world", " ", " ", "aaaa", "a"));
}

/// BPE by its definition, over the bytes of one word.
std::vector<std::string> merge_by_ranks(const std::vector<std::pair<std::string, std::string>>& merges,
                                        std::vector<std::string> symbols) {
  for (size_t rank = 0; rank < merges.size();) {
    bool merged = false;
    for (size_t i = 0; i + 1 < symbols.size() && !merged; ++i) {
      if (symbols[i] != merges[rank].first || symbols[i + 1] != merges[rank].second) continue;
      symbols[i] += symbols[i + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      merged = true;
    }
    rank = merged ? 0 : rank + 1;  // a merge may enable a better one
  }
  return symbols;
}

TEST(ByteLevelBpeTokenizer, MergesTheBestRankedPairFirst) {
  // Random merges of the letters a, b, c and of earlier merges: ranks contradict length and order.
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    Vocabulary vocabulary = small_bpe_vocabulary();
    vocabulary.merges.clear();
    std::vector<std::string> known{"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    for (int i = 0; i < 12; ++i) {
      merges.emplace_back(known[random() % known.size()], known[random() % known.size()]);
      known.push_back(merges.back().first + merges.back().second);
    }
    std::ranges::shuffle(merges, random);
    for (const auto& [left, right] : merges) {
      vocabulary.merges.push_back(left + " " + right);
      if (token_id(vocabulary, left + right) < 0)
        test::add_token(vocabulary, left + right, TokenType::normal);
    }
    std::vector<std::string> letters;
    for (int i = 0; i < 60; ++i)
      letters.emplace_back(1, "abc"[random() % 3]);
    std::string word;
    for (const std::string& letter : letters)
      word += letter;
    const auto tokenizer = make_tokenizer(vocabulary);
    EXPECT_EQ(pieces(*tokenizer, tokenizer->encode(word, kPlain)), merge_by_ranks(merges, letters));
  }
}

TEST(ByteLevelBpeTokenizer, IgnoreMergesTakesWholeWordsOfTheVocabulary) {
  for (const auto& [pre, whole] :
       {std::pair{"llama-bpe", true}, {"tekken", true}, {"gpt-2", false}, {"qwen2", false}}) {
    Vocabulary vocabulary = small_bpe_vocabulary(pre);
    vocabulary.add_bos = false;
    test::add_token(vocabulary, "Ġxyz", TokenType::normal);  // no merge reaches it
    const auto tokenizer = make_tokenizer(vocabulary);
    EXPECT_EQ(tokenizer->encode(" xyz", kPlain).size(), whole ? 1U : 4U) << pre;
  }
}

TEST(ByteLevelBpeTokenizer, NormalFormCIsAppliedWhereTheModelAsks) {
  for (const auto& [pre, composed] :
       {std::pair{"qwen2", true}, {"mpt", true}, {"command-r", true}, {"gpt-2", false}}) {
    const auto tokenizer = make_tokenizer(small_bpe_vocabulary(pre));
    const std::string text = "e\u0301";
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), composed ? "é" : text) << pre;
  }
}

TEST(ByteLevelBpeTokenizer, SpecialTokensAreParsedOnlyWhereAsked) {
  const Vocabulary vocabulary = small_bpe_vocabulary();
  const auto tokenizer = make_tokenizer(vocabulary);
  const std::string text = "a<|im_end|>b<tool>c";
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode(text)),
              ElementsAre("a", "<|im_end|>", "b", "<tool>", "c"));
  const std::vector<TokenId> plain = tokenizer->encode(text, kPlain);
  EXPECT_EQ(std::ranges::count(plain, token_id(vocabulary, "<|im_end|>")), 0);
  EXPECT_EQ(std::ranges::count(plain, token_id(vocabulary, "<tool>")), 1);
  EXPECT_EQ(tokenizer->decode(plain), text);
}

TEST(ByteLevelBpeTokenizer, SpacePrefixAndEosAreObeyed) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  vocabulary.add_space_prefix = true;
  vocabulary.add_eos = true;
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("hello")), ElementsAre(" hello", "<|endoftext|>"));
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode(" hello", kPlain)), ElementsAre(" hello"));
}

TEST(ByteLevelBpeTokenizer, EveryByteStringComesBack) {
  std::mt19937 random(12);
  for (const char* pre : {"default", "gpt-2", "llama-bpe", "deepseek-llm", "deepseek-coder", "falcon",
                          "starcoder", "tekken", "gpt-4o"}) {
    const auto tokenizer = make_tokenizer(small_bpe_vocabulary(pre));
    for (int i = 0; i < 100; ++i) {
      const std::string text =
          i % 2 == 0 ? random_bytes(random, random() % 200) : random_text(random, random() % 200);
      ASSERT_EQ(tokenizer->decode(tokenizer->encode(text, kPlain)), text) << pre;
    }
  }
}

/// SmolLM2's vocabulary with control characters; its unknown token is <|endoftext|>. Hugging Face's tokenizers give the same.
TEST(ByteLevelBpeTokenizer, BytesWithoutATokenAreLeftOut) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  const auto encoded = [&](const char* text) {
    const auto tokenizer = make_tokenizer(vocabulary);
    return pieces(*tokenizer, tokenizer->encode(text));
  };
  const std::vector<std::string> merged = encoded("hello");
  vocabulary.tokens[token_id(vocabulary, "x")] = "xylophone";
  for (const TokenType type : {TokenType::control, TokenType::unknown}) {
    EXPECT_THAT(encoded("axb"), ElementsAre("a", "b"));
    EXPECT_THAT(encoded("xx"), ElementsAre());
    EXPECT_EQ(encoded("hxelxxlo"), merged) << "neighbours merge over them";
    vocabulary.unknown = test::add_token(vocabulary, "<|endoftext|>", type);
    EXPECT_THAT(encoded("axb"), ElementsAre("a", "b")) << "the unknown token stands for nothing";
  }
}

// --- both ---

/// A document does not end at a character that the vocabulary lacks.
TEST(Tokenizer, NoTokenThatEndsTextsStandsForUnknownText) {
  Vocabulary vocabulary;
  vocabulary.tokens = {"<unk>", "a", "b"};
  vocabulary.types = {TokenType::control, TokenType::normal, TokenType::normal};
  vocabulary.unknown = 0;
  EXPECT_THAT(make_tokenizer(vocabulary)
                  ->encode("a\x04\x05"
                           "b"),
              ElementsAre(1, 0, 2));
  vocabulary.eos = 0;
  EXPECT_THAT(make_tokenizer(vocabulary)
                  ->encode("a\x04\x05"
                           "b"),
              ElementsAre(1, 2));
  vocabulary.eos = -1;
  vocabulary.end_tokens = {0};
  EXPECT_THAT(make_tokenizer(vocabulary)
                  ->encode("a\x04\x05"
                           "b"),
              ElementsAre(1, 2));
}

TEST(Tokenizer, TheLongestSpecialTokenCounts) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  for (const char* text : {"<x", "<x>", "<x>y", "<xy>"})
    test::add_token(vocabulary, text, TokenType::user_defined);
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("<x><x>y<xy<xy><", kPlain)),
              ElementsAre("<x>", "<x>y", "<x", "y", "<xy>", "<"));
}

TEST(Tokenizer, Phi3TakesTheSpaceBehindSpecialTokens) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  vocabulary.strip_right_of_special = true;
  test::add_token(vocabulary, "<|user|>", TokenType::control);
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_THAT(pieces(*tokenizer, tokenizer->encode("<|user|> \n the<s> a", {.add_special = false})),
              ElementsAre("<|user|>", " the", "<s>", " ", " a"));
}

TEST(Tokenizer, EndTokensAreFoundByIdAndByText) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  const TokenId turn = test::add_token(vocabulary, "<end_of_turn>", TokenType::normal);
  const TokenId named = test::add_token(vocabulary, "<|done|>", TokenType::control);
  vocabulary.end_tokens = {named};
  const auto tokenizer = make_tokenizer(vocabulary);
  for (const TokenId id : {vocabulary.eos, token_id(vocabulary, "<|im_end|>"), turn, named}) {
    EXPECT_TRUE(tokenizer->is_end(id)) << id;
    EXPECT_TRUE(tokenizer->is_control(id)) << id;
  }
  EXPECT_EQ(tokenizer->end_tokens().size(), 4U);
  EXPECT_FALSE(tokenizer->is_end(token_id(vocabulary, "a")));
}

TEST(Tokenizer, TokensAroundAGapAreFoundByIdAndByText) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  EXPECT_FALSE(make_tokenizer(vocabulary)->fim_tokens().complete());
  const TokenId prefix = test::add_token(vocabulary, "<|fim_prefix|>", TokenType::normal);
  const TokenId suffix = test::add_token(vocabulary, "<fim_suffix>", TokenType::normal);
  EXPECT_FALSE(make_tokenizer(vocabulary)->fim_tokens().complete());
  EXPECT_FALSE(make_tokenizer(vocabulary)->is_control(prefix));
  const TokenId middle = test::add_token(vocabulary, "[gap]", TokenType::normal);
  test::add_token(vocabulary, "<|fim_middle|>", TokenType::normal);
  vocabulary.fim.middle = middle;
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_EQ(tokenizer->fim_tokens().prefix, prefix);
  EXPECT_EQ(tokenizer->fim_tokens().suffix, suffix);
  EXPECT_EQ(tokenizer->fim_tokens().middle, middle);
  EXPECT_TRUE(tokenizer->is_control(prefix));
}

TEST(Tokenizer, InTheHarmonyFormatEndIsNoEndOfTurn) {
  Vocabulary vocabulary = small_bpe_vocabulary("gpt-4o");
  const TokenId end = test::add_token(vocabulary, "<|end|>", TokenType::control);
  EXPECT_TRUE(make_tokenizer(vocabulary)->is_end(end));
  const TokenId call = test::add_token(vocabulary, "<|call|>", TokenType::control);
  test::add_token(vocabulary, "<|return|>", TokenType::control);
  EXPECT_FALSE(make_tokenizer(vocabulary)->is_end(end));
  EXPECT_TRUE(make_tokenizer(vocabulary)->is_end(call));
}

TEST(Tokenizer, IdsOutsideTheVocabularyAreRefused) {
  const auto tokenizer = make_tokenizer(small_bpe_vocabulary());
  for (const TokenId id : {-1, tokenizer->vocab_size(), std::numeric_limits<TokenId>::max()}) {
    EXPECT_THROW(tokenizer->piece(id), Error);
    EXPECT_THROW(tokenizer->is_control(id), Error);
    EXPECT_THROW(tokenizer->decode(std::vector<TokenId>{id}), Error);
  }
}

TEST(ByteTokenizer, HasTheTokensThatItsHeaderLists) {
  const auto tokenizer = make_byte_tokenizer(300);
  EXPECT_EQ(tokenizer->vocab_size(), 300);
  EXPECT_EQ(tokenizer->encode("Aé"), (std::vector<TokenId>{1, 3 + 'A', 3 + 0xC3, 3 + 0xA9}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" a\xFF")), " a\xFF");
  EXPECT_EQ(tokenizer->piece(259), "<t259>");
  EXPECT_EQ(tokenizer->piece(299), "<t299>");
  EXPECT_EQ(tokenizer->encode("<t260>", kPlain).size(), 6U);
  EXPECT_TRUE(tokenizer->is_end(2));
  EXPECT_THROW(make_byte_tokenizer(259), Error);
}

TEST(Tokenizer, LongRunsTakeLinearTime) {
  const std::unique_ptr<Tokenizer> tokenizers[] = {
      make_tokenizer(small_sentencepiece_vocabulary()), make_tokenizer(small_bpe_vocabulary("llama-bpe")),
      make_tokenizer(small_bpe_vocabulary("qwen2")), make_tokenizer(test::small_character_bpe_vocabulary())};
  for (const auto& tokenizer : tokenizers) {
    for (const std::string unit : {"a", " ", "é", "\xFF", "\u0316\u0301"}) {
      std::string text;
      while (text.size() < (unit == "a" ? 1u << 20 : 1u << 17))
        text += unit;
      const double start = test::thread_cpu_seconds();
      const std::vector<TokenId> ids = tokenizer->encode(text, kPlain);
      EXPECT_GE(ids.size(), text.size() / 5);
      // 1 MB of "a" takes 0.1 to 0.5 s; quadratic time would take hours.
      EXPECT_LT(test::thread_cpu_seconds() - start, 100.0) << unit;
    }
  }
}

}  // namespace
}  // namespace minfer
