// The state that a request's sampling keeps from token to token.
#include "engine/request/sampling_state.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "kernels/base/error_types.h"

namespace minfer {
namespace {

const std::vector<TokenId> kPromptTokens{5, 7, 5};

/// (output count, in prompt) by token.
std::map<TokenId, std::pair<int32_t, bool>> counts_of(const SamplingRow& row) {
  std::map<TokenId, std::pair<int32_t, bool>> counts;
  for (const TokenCount& count : row.counts) {
    EXPECT_FALSE(counts.contains(count.token)) << "token " << count.token << " is listed twice";
    counts[count.token] = {count.output_count, count.in_prompt};
  }
  return counts;
}

std::vector<TokenId> forbidden(const SamplingRow& row) {
  std::vector<TokenId> tokens;
  for (const LogitBias& bias : row.biases) {
    if (std::isinf(bias.bias) && bias.bias < 0) tokens.push_back(bias.token);
  }
  return tokens;
}

TEST(SamplingStateTest, EachPenaltyAsksForCountsOfPromptAndOutput) {
  for (float SamplingParams::*penalty :
       {&SamplingParams::repetition_penalty, &SamplingParams::presence_penalty,
        &SamplingParams::frequency_penalty}) {
    SamplingParams params;
    params.*penalty = 1.5f;
    SamplingState state(params, 0, kPromptTokens, {});
    for (const TokenId token : {7, 9, 9})
      state.accept(token);
    EXPECT_EQ(counts_of(state.row(6, 3)),
              (std::map<TokenId, std::pair<int32_t, bool>>{{5, {0, true}}, {7, {1, true}}, {9, {2, false}}}));
  }
}

TEST(SamplingStateTest, WithoutPenaltiesNothingIsCounted) {
  SamplingState state({}, 0, kPromptTokens, {});
  state.accept(9);
  EXPECT_TRUE(state.row(4, 1).counts.empty());
}

TEST(SamplingStateTest, EndingTokensAreForbiddenExactlyUntilMinTokens) {
  SamplingParams params;
  params.min_tokens = 3;
  const std::vector<TokenId> ending{2, 40};
  const SamplingState state(params, 0, kPromptTokens, ending);
  for (int32_t num_output = 0; num_output < 3; ++num_output)
    EXPECT_EQ(forbidden(state.row(3 + num_output, num_output)), ending) << num_output;
  for (int32_t num_output = 3; num_output < 6; ++num_output)
    EXPECT_TRUE(state.row(3 + num_output, num_output).biases.empty()) << num_output;
}

TEST(SamplingStateTest, BiasesHoldBeforeAndAfterMinTokens) {
  SamplingParams params;
  params.min_tokens = 1;
  params.logit_bias = {{4, 2.5f}, {2, 90.0f}};
  const SamplingState state(params, 0, kPromptTokens, std::vector<TokenId>{2});
  const SamplingRow before = state.row(3, 0);
  EXPECT_EQ(before.biases.size(), 3u);
  EXPECT_EQ(forbidden(before), std::vector<TokenId>{2});  // its own bias of 90 does not save it
  const SamplingRow after = state.row(4, 1);
  ASSERT_EQ(after.biases.size(), 2u);
  EXPECT_EQ(after.biases[0].token, 4);
  EXPECT_EQ(after.biases[0].bias, 2.5f);
}

TEST(SamplingStateTest, MoreBiasesThanADeviceKeepsAreRefused) {
  SamplingParams params;
  params.logit_bias.assign(kMaxRowBiases, {4, 1.0f});
  EXPECT_NO_THROW(SamplingState(params, 0, kPromptTokens, std::vector<TokenId>{2}));
  params.min_tokens = 1;
  EXPECT_THROW(SamplingState(params, 0, kPromptTokens, std::vector<TokenId>{2}), Error);
  params.logit_bias.pop_back();
  const SamplingState state(params, 0, kPromptTokens, std::vector<TokenId>{2});
  EXPECT_EQ(state.row(3, 0).biases.data(), state.row(4, 1).biases.data()) << "the lasting ones come first";
}

TEST(SamplingStateTest, ParametersReachTheRow) {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_k = 3;
  params.top_p = 0.9f;
  params.min_p = 0.1f;
  params.repetition_penalty = 1.1f;
  params.presence_penalty = 0.2f;
  params.frequency_penalty = 0.3f;
  params.logprobs = 4;
  const SamplingRow row = SamplingState(params, 17, kPromptTokens, {}).row(12, 9);
  EXPECT_EQ(row.temperature, 0.7f);
  EXPECT_EQ(row.top_k, 3);
  EXPECT_EQ(row.top_p, 0.9f);
  EXPECT_EQ(row.min_p, 0.1f);
  EXPECT_EQ(row.repetition_penalty, 1.1f);
  EXPECT_EQ(row.presence_penalty, 0.2f);
  EXPECT_EQ(row.frequency_penalty, 0.3f);
  EXPECT_EQ(row.top_logprobs, 4);
  EXPECT_EQ(row.seed, 17u);
  EXPECT_EQ(row.position, 12);
}

}  // namespace
}  // namespace minfer
