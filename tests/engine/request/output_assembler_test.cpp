// Tokens to responses: a stream has the content of a single response at the end, whatever the tokens' borders
// and the interval.
#include "engine/request/output_assembler.h"

#include <gtest/gtest.h>

#include "models/tokenizer/utf8.h"
#include "tests/support/models/piece_tokenizer.h"
#include "tests/support/models/text_splits.h"

namespace minfer {
namespace {

constexpr int32_t kIntervals[] = {1, 2, 5, 16, 1000};

SampledToken sampled(size_t token) {
  return {.token = static_cast<TokenId>(token), .logprob = -0.5f, .top = {}};
}

/// The responses to all tokens of the vocabulary in order, as the engine asks for them. Ends as `length`
/// unless a stop string ends it before.
std::vector<RequestOutput> respond(const test::PieceTokenizer& tokenizer, const SamplingParams& params,
                                   int32_t stream_interval) {
  OutputAssembler assembler(tokenizer, params, stream_interval);
  std::vector<RequestOutput> outputs;
  const auto num_tokens = static_cast<size_t>(tokenizer.vocab_size()) - 1;
  for (size_t token = 0; token < num_tokens; ++token) {
    const bool stopped = assembler.accept(sampled(token), true);
    if (stopped || token + 1 == num_tokens) {
      outputs.push_back(assembler.take(stopped ? FinishReason::stop : FinishReason::length));
      break;
    }
    if (assembler.due()) outputs.push_back(assembler.take(std::nullopt));
  }
  return outputs;
}

std::string text_of(const std::vector<RequestOutput>& outputs) {
  std::string text;
  for (const RequestOutput& output : outputs)
    text += output.text;
  return text;
}

/// Every split of `bytes` into tokens, at every interval, gives the result of searching the whole text at
/// once, and no response ends inside a character or shows part of a stop string.
void expect_same_at_every_split(const std::string& bytes, const std::vector<std::string>& stops) {
  const test::StoppedText expected = test::stop_whole_text(replace_invalid_utf8(bytes), stops);
  SamplingParams params;
  params.stop = stops;
  for (const bool include_stop : {false, true}) {
    params.include_stop_in_output = include_stop;
    const std::string text = expected.text + (include_stop ? expected.stop : "");
    for (uint32_t split = 0; split < test::num_splits(bytes.size()); ++split) {
      const test::PieceTokenizer tokenizer(test::split_text(bytes, split));
      for (const int32_t interval : kIntervals) {
        const std::vector<RequestOutput> outputs = respond(tokenizer, params, interval);
        ASSERT_EQ(text_of(outputs), text) << "split " << split << ", interval " << interval;
        ASSERT_EQ(outputs.back().finish, expected.stop.empty() ? FinishReason::length : FinishReason::stop);
        ASSERT_EQ(outputs.back().finish_detail, expected.stop);
        for (const RequestOutput& output : outputs)
          ASSERT_EQ(valid_utf8_prefix(output.text), output.text.size()) << "split " << split;
      }
    }
  }
}

TEST(OutputAssemblerTest, EverySplitOfCharactersOfEveryLength) {
  expect_same_at_every_split("a\u00e9\u20ac\U0001f600b", {});
  expect_same_at_every_split("\U0001f600\U0001f601", {});
}

TEST(OutputAssemblerTest, EverySplitOfBytesThatAreNoText) {
  expect_same_at_every_split("a\xff\xc3z\xe2\x82z", {});
  expect_same_at_every_split("\xf0\x9f\x98", {});  // ends inside a character: U+FFFD
  expect_same_at_every_split("ab\xe2\x82", {});
  expect_same_at_every_split("\xed\xa0\x80\xc0\xaf", {});  // a surrogate and an overlong form
}

TEST(OutputAssemblerTest, EverySplitAroundStopStrings) {
  expect_same_at_every_split("one END two", {"END"});
  expect_same_at_every_split("EN END", {"END", "ND"});
  expect_same_at_every_split("aaabaaaab", {"aaaab"});
  expect_same_at_every_split("abcdef", {"cd", "bcd", "cdef"});
  expect_same_at_every_split("only EN", {"END"});  // held back until the end
}

TEST(OutputAssemblerTest, EverySplitAroundStopStringsBesideLongCharacters) {
  expect_same_at_every_split("\u00e9\u20ac\u00e8x", {"\u00e8"});         // shares its first byte with e acute
  expect_same_at_every_split("x\U0001f601\U0001f600y", {"\U0001f600"});  // shares three bytes
  expect_same_at_every_split("\u20acb\u20acc", {"\u20acc"});
  expect_same_at_every_split("a\u20ac\xe2\x82", {"\u20ac\ufffd"});  // the replaced rest completes it
}

TEST(OutputAssemblerTest, RespondsToTheFirstTokenThenEveryIntervalThenAtTheEnd) {
  const test::PieceTokenizer tokenizer(test::split_text("abcdefghijkl", ~0u));
  const std::vector<std::vector<std::string>> expected{
      {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"},
      {"a", "bc", "de", "fg", "hi", "jk", "l"},
      {"a", "bcdef", "ghijk", "l"},
      {"a", "bcdefghijkl"},
      {"a", "bcdefghijkl"}};
  for (size_t i = 0; i < std::size(kIntervals); ++i) {
    std::vector<std::string> texts;
    for (const RequestOutput& output : respond(tokenizer, {}, kIntervals[i])) {
      EXPECT_EQ(output.tokens.size(), output.text.size());
      texts.push_back(output.text);
    }
    EXPECT_EQ(texts, expected[i]) << "interval " << kIntervals[i];
  }
}

TEST(OutputAssemblerTest, ARequestMayAskForALongerIntervalNotForAShorterOne) {
  const test::PieceTokenizer tokenizer(test::split_text("abcdefghijkl", ~0u));
  SamplingParams params;
  params.stream_interval = 5;
  EXPECT_EQ(respond(tokenizer, params, 2).size(), 4u);
  params.stream_interval = 1;
  EXPECT_EQ(respond(tokenizer, params, 5).size(), 4u);
}

TEST(OutputAssemblerTest, DecodesNothingBetweenResponses) {
  const test::PieceTokenizer tokenizer(test::split_text("abcdefghijkl", ~0u));
  OutputAssembler assembler(tokenizer, {}, 8);
  assembler.accept(sampled(0), true);
  ASSERT_TRUE(assembler.due());
  assembler.take(std::nullopt);
  tokenizer.num_decoded = 0;
  for (size_t token = 1; token < 8; ++token) {
    assembler.accept(sampled(token), true);
    EXPECT_FALSE(assembler.due());
  }
  EXPECT_EQ(tokenizer.num_decoded, 0);
  assembler.accept(sampled(8), true);
  EXPECT_TRUE(assembler.due());
  EXPECT_EQ(assembler.take(std::nullopt).text, "bcdefghi");
  EXPECT_EQ(tokenizer.num_decoded, 8);
}

TEST(OutputAssemblerTest, AStopStringIsNoticedAtItsTokenWhateverTheInterval) {
  const test::PieceTokenizer tokenizer({"a", "b", "ST", "OP", "c"});
  SamplingParams params;
  params.stop = {"STOP"};
  const std::vector<RequestOutput> outputs = respond(tokenizer, params, 1000);
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[1].tokens, (std::vector<TokenId>{1, 2, 3}));
  EXPECT_EQ(outputs[1].text, "b");
}

TEST(OutputAssemblerTest, AStopStringCountsIfItEndsBehindMinTokens) {
  const test::PieceTokenizer tokenizer({"aST", "OP", "bST", "OPc", "STOP"});
  SamplingParams params;
  params.stop = {"STOP"};
  const std::string texts[] = {"a", "a", "aSTOPb", "aSTOPb", "aSTOPbSTOPc", "aSTOPbSTOPcSTOP"};
  for (const bool include_stop : {false, true}) {
    params.include_stop_in_output = include_stop;
    for (int32_t min_tokens = 0; min_tokens <= 5; ++min_tokens) {
      params.min_tokens = min_tokens;
      for (const int32_t interval : kIntervals) {
        const std::vector<RequestOutput> outputs = respond(tokenizer, params, interval);
        const bool stops = min_tokens < 5;
        EXPECT_EQ(text_of(outputs), texts[min_tokens] + (stops && include_stop ? "STOP" : "")) << min_tokens;
        EXPECT_EQ(outputs.back().finish, stops ? FinishReason::stop : FinishReason::length) << min_tokens;
      }
    }
  }
}

TEST(OutputAssemblerTest, EndTokensAreReportedButNotShown) {
  for (const bool skip_special : {true, false}) {
    const test::PieceTokenizer tokenizer({"a"});
    SamplingParams params;
    params.skip_special_tokens = skip_special;
    OutputAssembler assembler(tokenizer, params, 16);
    assembler.accept(sampled(0), true);
    assembler.accept(sampled(1), false);
    const RequestOutput output = assembler.take(FinishReason::stop);
    EXPECT_EQ(output.text, "a");
    EXPECT_EQ(output.tokens, (std::vector<TokenId>{0, 1}));
  }
}

TEST(OutputAssemblerTest, ControlTokensInTheTextAreShownIfAskedFor) {
  const test::PieceTokenizer tokenizer({"a"});
  for (const bool skip_special : {true, false}) {
    SamplingParams params;
    params.skip_special_tokens = skip_special;
    OutputAssembler assembler(tokenizer, params, 16);
    assembler.accept(sampled(1), true);
    EXPECT_EQ(assembler.take(FinishReason::length).text, skip_special ? "" : "</s>");
  }
}

TEST(OutputAssemblerTest, LogprobsGoWithTheirTokens) {
  const test::PieceTokenizer tokenizer(test::split_text("abcdefg", ~0u));
  SamplingParams params;
  EXPECT_TRUE(respond(tokenizer, params, 3).front().logprobs.empty());
  params.logprobs = 0;
  for (const RequestOutput& output : respond(tokenizer, params, 3)) {
    ASSERT_EQ(output.logprobs.size(), output.tokens.size());
    for (size_t i = 0; i < output.tokens.size(); ++i)
      EXPECT_EQ(output.logprobs[i].token, output.tokens[i]);
  }
}

}  // namespace
}  // namespace minfer
