#include "server/bench/bench_workload.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "server/bench/bench_output.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::DoubleNear;
using testing::Each;

WorkloadOptions options_of(int32_t num_prompts) {
  WorkloadOptions options;
  options.num_prompts = num_prompts;
  options.input_len = 20;
  options.output_len = 10;
  return options;
}

TEST(BenchWorkload, GapsHaveTheMeanAndVarianceOfTheGammaDistribution) {
  constexpr double kRate = 50.0;
  for (const double burstiness : {0.25, 1.0, 4.0, 1000.0}) {
    std::mt19937_64 random(7);
    const std::vector<double> times = arrival_times(20000, kRate, burstiness, random);
    std::vector<double> gaps;
    for (size_t i = 1; i < times.size(); ++i)
      gaps.push_back(times[i] - times[i - 1]);
    EXPECT_THAT(mean_of(gaps), DoubleNear(1.0 / kRate, 1e-4 / kRate)) << burstiness;
    const double deviation = 1.0 / (kRate * std::sqrt(burstiness));
    EXPECT_THAT(deviation_of(gaps), DoubleNear(deviation, 0.05 * deviation)) << burstiness;
    EXPECT_TRUE(std::ranges::is_sorted(times));
    EXPECT_THAT(times.back(), DoubleNear(20000 / kRate, 1e-6)) << "the rate is kept exactly";
  }
}

TEST(BenchWorkload, WithoutARateAllArriveAtOnce) {
  std::mt19937_64 random(7);
  EXPECT_THAT(arrival_times(5, std::numeric_limits<double>::infinity(), 1.0, random), Each(0.0));
  EXPECT_TRUE(arrival_times(0, 5.0, 1.0, random).empty());
}

TEST(BenchWorkload, PromptsAreTextTokensOfExactLengthBehindOnePrefix) {
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer(512);
  WorkloadOptions options = options_of(30);
  options.prefix_len = 5;
  const std::vector<Conversation> workload = make_workload(options, tokenizer.get());
  ASSERT_EQ(workload.size(), 30u);
  std::set<std::vector<TokenId>> prefixes, rests;
  for (const Conversation& conversation : workload) {
    ASSERT_EQ(conversation.turns.size(), 1u);
    const std::vector<TokenId>& tokens = conversation.turns[0].prompt.tokens;
    ASSERT_EQ(tokens.size(), 25u);
    EXPECT_EQ(conversation.turns[0].output_len, 10);
    for (TokenId token : tokens)
      EXPECT_FALSE(tokenizer->is_control(token));
    prefixes.insert({tokens.begin(), tokens.begin() + 5});
    rests.insert({tokens.begin() + 5, tokens.end()});
  }
  EXPECT_EQ(prefixes.size(), 1u);
  EXPECT_EQ(rests.size(), 30u);
}

TEST(BenchWorkload, ASeedGivesTheSameWorkloadAgain) {
  const std::unique_ptr<Tokenizer> tokenizer = make_byte_tokenizer(512);
  WorkloadOptions options = options_of(3);
  const auto first = make_workload(options, tokenizer.get());
  const auto again = make_workload(options, tokenizer.get());
  options.seed = 1;
  const auto other = make_workload(options, tokenizer.get());
  EXPECT_EQ(first[2].turns[0].prompt.tokens, again[2].turns[0].prompt.tokens);
  EXPECT_NE(first[2].turns[0].prompt.tokens, other[2].turns[0].prompt.tokens);
}

TEST(BenchWorkload, LengthsVaryAroundThoseGiven) {
  WorkloadOptions options = options_of(500);
  options.range_ratio = 0.3;
  std::set<size_t> inputs;
  std::set<int32_t> outputs;
  for (const Conversation& conversation : make_workload(options, make_byte_tokenizer(512).get())) {
    inputs.insert(conversation.turns[0].prompt.tokens.size());
    outputs.insert(conversation.turns[0].output_len);
  }
  EXPECT_EQ(*inputs.begin(), 14u);
  EXPECT_EQ(*inputs.rbegin(), 26u);
  EXPECT_EQ(*outputs.begin(), 7);
  EXPECT_EQ(*outputs.rbegin(), 13);
}

TEST(BenchWorkload, WithoutAVocabularyPromptsAreWords) {
  WorkloadOptions options = options_of(2);
  options.prefix_len = 4;
  const std::vector<Conversation> workload = make_workload(options, nullptr);
  const std::string &first = workload[0].turns[0].prompt.text, &second = workload[1].turns[0].prompt.text;
  EXPECT_EQ(std::ranges::count(first, ' '), 23) << first;
  size_t shared = 0;
  for (int words = 0; words < 4; ++words)
    shared = first.find(' ', shared) + 1;
  EXPECT_EQ(first.substr(0, shared), second.substr(0, shared));
  EXPECT_NE(first, second);
}

TEST(BenchWorkload, TurnsAfterTheFirstHaveNoPrefix) {
  WorkloadOptions options = options_of(2);
  options.prefix_len = 7;
  options.num_turns = 3;
  for (const Conversation& conversation : make_workload(options, make_byte_tokenizer(512).get())) {
    ASSERT_EQ(conversation.turns.size(), 3u);
    EXPECT_EQ(conversation.turns[0].prompt.tokens.size(), 27u);
    EXPECT_EQ(conversation.turns[1].prompt.tokens.size(), 20u);
  }
}

TEST(BenchWorkload, WarmUpsRepeatTheFirstTurnAtOnce) {
  WorkloadOptions options = options_of(2);
  options.num_turns = 2;
  options.request_rate = 1.0;
  options.num_warmups = 3;
  const auto workload = make_workload(options, nullptr);
  const auto warmup = make_warmup(options, workload);
  ASSERT_EQ(warmup.size(), 3u);
  for (const Conversation& conversation : warmup) {
    ASSERT_EQ(conversation.turns.size(), 1u);
    EXPECT_EQ(conversation.turns[0].prompt.text, workload[0].turns[0].prompt.text);
    EXPECT_EQ(conversation.arrival_s, 0.0);
  }
}

TEST(BenchWorkload, DatasetsKeepTextAndTokensApart) {
  const test::TemporaryDirectory directory;
  WorkloadOptions options = options_of(0);
  options.dataset = directory.path() / "prompts.jsonl";
  std::ofstream(options.dataset)
      << "{\"prompt\": \"hello\", \"output_len\": 3}\n\n{\"prompt\": [5, 6], \"priority\": -2}\n";
  const auto workload = make_workload(options, nullptr);
  ASSERT_EQ(workload.size(), 2u);
  EXPECT_EQ(workload[0].turns[0].prompt.text, "hello");
  EXPECT_EQ(workload[0].turns[0].output_len, 3);
  EXPECT_EQ(workload[1].turns[0].prompt.tokens, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(workload[1].turns[0].output_len, 10);
  EXPECT_EQ(workload[1].priority, -2);
  options.dataset = directory.path() / "none";
  EXPECT_THROW(make_workload(options, nullptr), FileError);
}

}  // namespace
}  // namespace minfer
