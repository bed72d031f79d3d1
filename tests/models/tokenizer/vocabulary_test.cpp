// Vocabularies from files, and errors in files.
#include "models/tokenizer/vocabulary.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/gguf/gguf.h"
#include "tests/support/models/gguf_builder.h"
#include "tests/support/models/vocabularies.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::GgufBuilder;
using test::small_bpe_vocabulary;
using test::small_character_bpe_vocabulary;
using test::small_sentencepiece_vocabulary;
using ::testing::HasSubstr;

std::vector<int32_t> type_numbers(const Vocabulary& vocabulary) {
  std::vector<int32_t> numbers;
  for (const TokenType type : vocabulary.types)
    numbers.push_back(static_cast<int32_t>(type));
  return numbers;
}

/// A file with the vocabulary's tokens, types, scores and merges; the test sets ids and flags.
GgufBuilder file_of(const Vocabulary& vocabulary) {
  const bool spm = vocabulary.model == VocabularyModel::sentencepiece;
  const bool words = vocabulary.model == VocabularyModel::byte_level_bpe;
  GgufBuilder builder;
  builder.add("general.architecture", "llama");
  builder.add("tokenizer.ggml.model", spm ? "llama" : words ? "gpt2" : "gemma4");
  if (spm || words) builder.add("tokenizer.ggml.pre", spm ? "default" : vocabulary.pre);
  builder.add("tokenizer.ggml.tokens", vocabulary.tokens);
  builder.add("tokenizer.ggml.token_type", type_numbers(vocabulary));
  if (spm) builder.add("tokenizer.ggml.scores", vocabulary.scores);
  if (!spm) builder.add("tokenizer.ggml.merges", vocabulary.merges);
  return builder;
}

std::unique_ptr<Tokenizer> load(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.build();
  return make_tokenizer(GgufFile::from_memory(bytes, "test.gguf"));
}

std::string load_error(const GgufBuilder& builder) {
  return test::refusal_of<FileError>([&] { load(builder); });
}

std::string error_of(const Vocabulary& vocabulary) {
  return test::refusal_of<FileError>([&] { make_tokenizer(vocabulary); });
}

// --- what files say and leave out ---

TEST(ReadVocabulary, SentencePieceFilesHaveLlamasDefaults) {
  const auto tokenizer = load(file_of(small_sentencepiece_vocabulary()));
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->is_end(2));
  const std::vector<TokenId> ids = tokenizer->encode("the");
  ASSERT_EQ(ids.size(), 2U);
  EXPECT_EQ(ids[0], 1);
  EXPECT_EQ(tokenizer->piece(ids[1]), " the");
}

TEST(ReadVocabulary, KeysOverrideDefaults) {
  GgufBuilder builder = file_of(small_sentencepiece_vocabulary());
  builder.add("tokenizer.ggml.bos_token_id", 2u).add("tokenizer.ggml.eos_token_id", 1u);
  builder.add("tokenizer.ggml.add_bos_token", false).add("tokenizer.ggml.add_eos_token", true);
  builder.add("tokenizer.ggml.add_space_prefix", false);
  const auto tokenizer = load(builder);
  EXPECT_EQ(tokenizer->bos(), 2);
  EXPECT_EQ(tokenizer->encode("the").back(), 1);
  EXPECT_EQ(tokenizer->piece(tokenizer->encode("the").front()), "the");
}

TEST(ReadVocabulary, BpeFilesHaveNoDefaultIdsAndSomeAddBos) {
  EXPECT_EQ(load(file_of(small_bpe_vocabulary()))->bos(), -1);
  for (const auto& [pre, adds] : {std::pair{"llama-bpe", true}, {"tekken", true}, {"qwen2", false}}) {
    GgufBuilder builder = file_of(small_bpe_vocabulary(pre));
    builder.add("tokenizer.ggml.bos_token_id", 7u);
    EXPECT_EQ(load(builder)->encode("a").size(), adds ? 2U : 1U) << pre;
  }
  // Without a BOS token none can be added.
  EXPECT_EQ(load(file_of(small_bpe_vocabulary("llama-bpe")))->encode("a").size(), 1U);
}

TEST(ReadVocabulary, Gemma4AddsBosWhateverItsFileSays) {
  for (const bool says_so : {false, true}) {
    GgufBuilder builder = file_of(small_character_bpe_vocabulary());
    builder.add("tokenizer.ggml.bos_token_id", 2u).add("tokenizer.ggml.add_bos_token", says_so);
    EXPECT_EQ(load(builder)->encode("the").front(), 2);
  }
  EXPECT_EQ(load(file_of(small_character_bpe_vocabulary()))->bos(), -1) << "no default ids";
}

TEST(ReadVocabulary, EndOfTurnIdsAreEndTokens) {
  GgufBuilder builder = file_of(small_bpe_vocabulary());
  builder.add("tokenizer.ggml.eot_token_id", 5u).add("tokenizer.ggml.eom_token_id", 6u);
  const auto tokenizer = load(builder);
  EXPECT_TRUE(tokenizer->is_end(5));
  EXPECT_TRUE(tokenizer->is_end(6));
}

TEST(ReadVocabulary, NamesTheTokensAroundAGap) {
  GgufBuilder builder = file_of(small_bpe_vocabulary());
  builder.add("tokenizer.ggml.fim_pre_token_id", 5u).add("tokenizer.ggml.fim_suf_token_id", 6u);
  builder.add("tokenizer.ggml.fim_mid_token_id", 7u);
  const FimTokens fim = load(builder)->fim_tokens();
  EXPECT_EQ(fim.prefix, 5);
  EXPECT_EQ(fim.suffix, 6);
  EXPECT_EQ(fim.middle, 7);
}

TEST(ReadVocabulary, MinusOneMeansNoToken) {
  GgufBuilder builder = file_of(small_bpe_vocabulary());
  builder.add("tokenizer.ggml.bos_token_id", std::numeric_limits<uint32_t>::max());
  builder.add("tokenizer.ggml.eos_token_id", int32_t{-1});
  EXPECT_EQ(load(builder)->bos(), -1);
  EXPECT_EQ(load(builder)->eos(), -1);
}

TEST(ReadVocabulary, Phi3IsKnownByItsName) {
  GgufBuilder builder = file_of(small_sentencepiece_vocabulary());
  builder.add("general.name", "Phi-3 Mini");
  EXPECT_EQ(load(builder)->encode("</s>  the", {.add_special = false}).size(), 2U);
}

TEST(ReadVocabulary, WithoutTypesTheyFollowFromTheIds) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  vocabulary.types.clear();
  vocabulary.scores.clear();
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_TRUE(tokenizer->is_control(vocabulary.bos));
  EXPECT_TRUE(tokenizer->is_control(vocabulary.unknown));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("x\xFF")), "x\xFF");
}

// --- malformed files ---

TEST(ReadVocabulary, UnknownModelsAreRefused) {
  EXPECT_THAT(load_error(GgufBuilder().add("tokenizer.ggml.model", "bert")),
              testing::AllOf(HasSubstr("tokenizer.ggml.model"), HasSubstr("'bert'"), HasSubstr("gpt2"),
                             HasSubstr("gemma4")));
  EXPECT_THAT(load_error(GgufBuilder().add("general.name", "x")), HasSubstr("tokenizer.ggml.model"));
  GgufBuilder builder = file_of(small_bpe_vocabulary("klingon"));
  EXPECT_THAT(load_error(builder), testing::AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("'klingon'")));
}

TEST(ReadVocabulary, SpecialIdsBeyondTheVocabularyAreRefusedByKey) {
  for (const char* key :
       {"bos_token_id", "eos_token_id", "unknown_token_id", "eot_token_id", "eom_token_id"}) {
    for (const int64_t id : {int64_t{100000}, int64_t{-2}, std::numeric_limits<int64_t>::min()}) {
      GgufBuilder builder = file_of(small_sentencepiece_vocabulary());
      builder.add(std::string("tokenizer.ggml.") + key, id);
      EXPECT_THAT(load_error(builder), testing::AllOf(HasSubstr(key), HasSubstr(std::to_string(id)))) << key;
    }
  }
}

TEST(ReadVocabulary, ArraysOfAnotherTypeAreRefused) {
  for (const char* key : {"tokens", "scores", "token_type", "merges"}) {
    const std::string full_key = std::string("tokenizer.ggml.") + key;
    GgufBuilder builder;
    builder.add("tokenizer.ggml.model", "gpt2").add(full_key, "text");
    EXPECT_THAT(load_error(builder), HasSubstr(full_key));
  }
}

TEST(ReadVocabulary, AddedTokensMustExist) {
  for (const char* token : {"bos", "eos"}) {
    GgufBuilder builder = file_of(small_bpe_vocabulary());
    builder.add(std::string("tokenizer.ggml.add_") + token + "_token", true);
    EXPECT_THAT(load_error(builder), HasSubstr(std::string("add_") + token + "_token"));
  }
}

TEST(Vocabulary, ByteTokensMustBeSpeltAsBytes) {
  for (const char* text :
       {"<0x-1>", "<0x+1>", "<0x1>", "<0x100>", "<0xGG>", "<0x 1>", "0x01", "<0x41", "", "A"}) {
    EXPECT_FALSE(parse_byte_token(text)) << text;
    Vocabulary vocabulary = small_sentencepiece_vocabulary();
    vocabulary.tokens[3] = text;
    EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.tokens[3]")) << text;
  }
  EXPECT_EQ(parse_byte_token("<0x00>"), 0);
  EXPECT_EQ(parse_byte_token("<0xfF>"), 255);
}

TEST(Vocabulary, CountsMustAgree) {
  Vocabulary scores = small_sentencepiece_vocabulary();
  scores.scores.pop_back();
  EXPECT_THAT(error_of(scores), HasSubstr("tokenizer.ggml.scores"));
  Vocabulary types = small_bpe_vocabulary();
  types.types.push_back(TokenType::normal);
  EXPECT_THAT(error_of(types), HasSubstr("tokenizer.ggml.token_type"));
  EXPECT_THAT(error_of(Vocabulary{}), HasSubstr("tokenizer.ggml.tokens"));
}

TEST(Vocabulary, IdsMustBeInsideIt) {
  for (const TokenId id :
       {-2, 100000, std::numeric_limits<TokenId>::min(), std::numeric_limits<TokenId>::max()}) {
    for (TokenId Vocabulary::*field : {&Vocabulary::bos, &Vocabulary::eos, &Vocabulary::unknown}) {
      Vocabulary vocabulary = small_sentencepiece_vocabulary();
      vocabulary.*field = id;
      EXPECT_THAT(error_of(vocabulary), HasSubstr(std::to_string(id)));
    }
    Vocabulary vocabulary = small_bpe_vocabulary();
    vocabulary.end_tokens = {id};
    EXPECT_THAT(error_of(vocabulary), HasSubstr(std::to_string(id)));
    vocabulary.end_tokens.clear();
    vocabulary.fim.middle = id;
    EXPECT_THAT(error_of(vocabulary), HasSubstr(std::to_string(id)));
  }
}

TEST(Vocabulary, ScoresMustBeNumbers) {
  Vocabulary vocabulary = small_sentencepiece_vocabulary();
  vocabulary.scores[260] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.scores[260]"));
  vocabulary.scores[260] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(error_of(vocabulary), "");
}

TEST(Vocabulary, SpecialTokensMustBeShort) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  test::add_token(vocabulary, std::string(1024, 'x'), TokenType::control);
  EXPECT_EQ(error_of(vocabulary), "");
  test::add_token(vocabulary, std::string(1025, 'x'), TokenType::user_defined);
  EXPECT_THAT(error_of(vocabulary), HasSubstr("1025 bytes"));
}

TEST(Vocabulary, MergesMustBeOfKnownTokens) {
  for (const char* merge : {"q zz", "zz q", "q w", "", " ", "q", "q ", " q", "q  w", "\xFF q", "中 q"}) {
    Vocabulary vocabulary = small_bpe_vocabulary();
    vocabulary.merges.insert(vocabulary.merges.begin(), merge);
    EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.merges[0]")) << merge;
  }
}

TEST(Vocabulary, MergesOfCharactersMustBeOfKnownTokens) {
  for (const char* merge : {"a zz", "zz a", "a h", "", " ", "a", "a ", " a", "a  h", "\xFF a"}) {
    Vocabulary vocabulary = small_character_bpe_vocabulary();
    vocabulary.merges.insert(vocabulary.merges.begin(), merge);
    EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.merges[0]")) << merge;
  }
  Vocabulary vocabulary = small_character_bpe_vocabulary();
  vocabulary.merges.clear();
  EXPECT_THAT(error_of(vocabulary), HasSubstr("tokenizer.ggml.merges: none"));
}

TEST(Vocabulary, MergesThatMakeSpecialTokensAreLeftOut) {
  Vocabulary vocabulary = small_bpe_vocabulary();
  test::add_token(vocabulary, "qw", TokenType::control);
  vocabulary.merges.insert(vocabulary.merges.begin(), "q w");
  const auto tokenizer = make_tokenizer(vocabulary);
  EXPECT_EQ(tokenizer->encode("qw", {.add_special = false, .parse_special = false}).size(), 2U);
}

TEST(Vocabulary, EmptyAndRepeatedTokensAreHarmless) {
  for (Vocabulary vocabulary :
       {small_sentencepiece_vocabulary(), small_bpe_vocabulary(), small_character_bpe_vocabulary()}) {
    const TokenId first = test::token_id(vocabulary, "h");
    for (const TokenType type :
         {TokenType::normal, TokenType::control, TokenType::user_defined, TokenType::unused}) {
      test::add_token(vocabulary, "", type);
    }
    test::add_token(vocabulary, "h", TokenType::normal);
    test::add_token(vocabulary, vocabulary.tokens[static_cast<size_t>(vocabulary.eos)], TokenType::control);
    const auto tokenizer = make_tokenizer(vocabulary);
    vocabulary.add_bos = false;
    const std::vector<TokenId> ids = tokenizer->encode("hi", {.add_special = false});
    EXPECT_EQ(std::ranges::count(ids, first), 1);
    EXPECT_EQ(tokenizer->decode(ids), "hi");
    EXPECT_EQ(
        tokenizer->encode(vocabulary.tokens[static_cast<size_t>(vocabulary.eos)], {.add_special = false}),
        std::vector<TokenId>{vocabulary.eos});
  }
}

TEST(Vocabulary, AVocabularyOfOneTokenWorks) {
  Vocabulary vocabulary;
  vocabulary.tokens = {"a"};
  EXPECT_EQ(make_tokenizer(vocabulary)->encode("ba"), std::vector<TokenId>{0});
  vocabulary.model = VocabularyModel::byte_level_bpe;
  vocabulary.pre = "default";
  EXPECT_EQ(make_tokenizer(vocabulary)->encode("ba\xFF"), std::vector<TokenId>{0});
}

}  // namespace
}  // namespace minfer
