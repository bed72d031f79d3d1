// minfer eval as people use it: logits of given tokens, and the perplexity of a text.
#include <cmath>
#include <regex>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/support/models/fixtures.h"
#include "tests/support/server/command_line.h"

namespace minfer {
namespace {

using test::Outcome;

class EvalCommandTest : public testing::Test {
 protected:
  /// Options that make the command quick.
  static constexpr const char* kTiny = "--model synthetic:tiny:q8_0 --max-model-len 256 --threads 1 ";

  test::CommandLine line_;
};

TEST_F(EvalCommandTest, EvalWritesTheLogitsOfGivenTokens) {
  line_.write("tokens.txt", "1 300 301\n302\t5\n");
  const Outcome outcome = line_.minfer(std::string("eval --tokens tokens.txt --logits out.logits ") + kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(std::filesystem::file_size(line_.path("out.logits")), 8u + 5 * 4 + 5 * 512 * 4);
  const test::GoldenLogits golden = test::read_logits(line_.path("out.logits"));
  EXPECT_EQ(golden.tokens, (std::vector<int32_t>{1, 300, 301, 302, 5}));
  EXPECT_EQ(golden.vocab, 512);
  ASSERT_EQ(golden.logits.size(), 5u * 512);
  for (const float logit : golden.logits)
    ASSERT_TRUE(std::isfinite(logit));
  const std::string whole = line_.read("out.logits");
  ASSERT_EQ(
      line_.minfer(std::string("eval --tokens tokens.txt --logits out.logits --chunk 2 ") + kTiny).exit_code,
      0);
  EXPECT_EQ(line_.read("out.logits"), whole);
}

TEST_F(EvalCommandTest, EvalOffersNoOptionsOfTheScheduler) {
  line_.write("tokens.txt", "1 2");
  for (const char* option : {"--max-num-seqs 4", "--scheduling-policy fcfs", "--enable-prefix-caching",
                             "--no-enable-chunked-prefill", "--stream-interval 2", "--seed 1"}) {
    const Outcome outcome =
        line_.minfer(fmt::format("eval --tokens tokens.txt --logits out.logits {} {}", option, kTiny));
    EXPECT_EQ(outcome.exit_code, 2) << option;
  }
}

TEST_F(EvalCommandTest, EvalComputesAsManyTokensAStepAsItIsTold) {
  std::string tokens;
  for (int i = 0; i < 600; ++i)
    tokens += std::to_string(i % 500 + 3) + ' ';
  line_.write("tokens.txt", tokens);
  const std::string command = "eval --tokens tokens.txt --model synthetic:tiny:q8_0 --threads 1 --logits ";
  ASSERT_EQ(line_.minfer(command + "default.logits").exit_code, 0);
  for (const char* num_tokens : {"7", "600", "4096"}) {
    ASSERT_EQ(line_.minfer(command + "out.logits --max-num-batched-tokens " + num_tokens).exit_code, 0);
    EXPECT_EQ(line_.read("out.logits"), line_.read("default.logits")) << num_tokens;
  }
  const Outcome none = line_.minfer(command + "out.logits --max-num-batched-tokens 0");
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, testing::HasSubstr("max-num-batched-tokens"));
}

TEST_F(EvalCommandTest, EvalRefusesWhatAreNoTokens) {
  for (const char* tokens : {"", "1 x 2", "1 512", "-1", "99999999999"}) {
    line_.write("tokens.txt", tokens);
    const Outcome outcome =
        line_.minfer(std::string("eval --tokens tokens.txt --logits out.logits ") + kTiny);
    EXPECT_EQ(outcome.exit_code, 1) << tokens;
  }
  EXPECT_EQ(line_.minfer(std::string("eval ") + kTiny).exit_code, 1);
  line_.write("tokens.txt", "1 2");
  EXPECT_EQ(line_.minfer(std::string("eval --tokens tokens.txt ") + kTiny).exit_code, 2)
      << "--logits is missing";
}

double perplexity(const std::string& out) {
  std::smatch match;
  return std::regex_search(out, match, std::regex("perplexity ([0-9.]+) \\+/- [0-9.]+")) ? std::stod(match[1])
                                                                                         : std::nan("");
}

TEST_F(EvalCommandTest, PerplexityIsLowForWhatTheModelKnowsAndHighForNoise) {
  std::string story, noise;
  for (int i = 0; i < 12; ++i) {
    story += "One day, Tom went to the park. He was happy. His best friend was Lily, a girl. ";
    for (int k = 0; k < 60; ++k)
      noise += static_cast<char>('!' + (i * 53 + k * k * 7 + k) % 90);
  }
  line_.write("story.txt", story);
  line_.write("noise.txt", noise);
  const Outcome known = line_.minfer("eval --text story.txt --window 128");
  const Outcome unknown = line_.minfer("eval --text noise.txt --window 128");
  ASSERT_EQ(known.exit_code, 0) << known.err;
  ASSERT_EQ(unknown.exit_code, 0) << unknown.err;
  EXPECT_GT(perplexity(known.out), 1.0);
  EXPECT_GT(perplexity(unknown.out), 3.0 * perplexity(known.out)) << known.out << unknown.out;
  EXPECT_TRUE(std::isfinite(perplexity(unknown.out)));
  const Outcome short_text = line_.minfer("eval --text story.txt --window 2048");
  EXPECT_EQ(short_text.exit_code, 1);
  EXPECT_THAT(short_text.err, testing::HasSubstr("--window"));
}

}  // namespace
}  // namespace minfer
