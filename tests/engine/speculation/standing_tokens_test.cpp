#include <gtest/gtest.h>

#include "engine/speculation/speculator.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {
namespace {

class StandingTokensTest : public testing::Test {
 protected:
  static Request make_request() {
    Request request;
    request.id = "a";
    request.prompt = {1, 2};
    request.sampling.stop_token_ids = {50};
    request.sampling.ignore_eos = true;
    return request;
  }

  StandingTokens take(std::vector<TokenId> drafts, const std::vector<TokenId>& drawn,
                      std::optional<double> acceptance = {}) {
    request_.drafts = std::move(drafts);
    std::vector<SampledToken> sampled(drawn.size());
    for (size_t i = 0; i < drawn.size(); ++i)
      sampled[i].token = drawn[i];
    return standing_tokens(request_, sampled, acceptance, tokens_);
  }

  std::unique_ptr<Tokenizer> tokenizer_ = open_tokenizer("synthetic:tiny");
  LiveRequest request_{make_request(), *tokenizer_, 1, 1};
  std::vector<TokenId> tokens_;
};

using Tokens = std::vector<TokenId>;

TEST_F(StandingTokensTest, UpToTheFirstThatDiffersFromItsDraft) {
  take({7, 8, 9}, {7, 8, 9, 10});
  EXPECT_EQ(tokens_, (Tokens{7, 8, 9, 10}));
  take({7, 8, 9}, {7, 4, 9, 10});
  EXPECT_EQ(tokens_, (Tokens{7, 4})) << "what was drawn behind a wrong draft is not what would have been";
  take({7, 8, 9}, {6, 8, 9, 10});
  EXPECT_EQ(tokens_, Tokens{6});
  take({}, {3});
  EXPECT_EQ(tokens_, Tokens{3});
}

TEST_F(StandingTokensTest, NothingBehindAnEnd) {
  const StandingTokens standing = take({7, 50, 9}, {7, 50, 9, 10});
  EXPECT_EQ(tokens_, (Tokens{7, 50}));
  EXPECT_TRUE(standing.ends);
  EXPECT_FALSE(take({7, 50}, {8, 50, 9}).ends) << "an end token that was only drafted";
}

TEST_F(StandingTokensTest, AsManyAsAreToBeAccepted) {
  take({7, 8, 9}, {1, 2, 3, 4}, 1.0);
  EXPECT_EQ(tokens_, (Tokens{7, 8, 9, 4}))
      << "drafts in place of what was drawn, and what was drawn behind them";
  take({7, 8, 9}, {7, 8, 9, 4}, 0.0);
  EXPECT_EQ(tokens_, Tokens{7});
  EXPECT_TRUE(take({7, 50, 9}, {1, 2, 3, 4}, 1.0).ends);
  constexpr double kRate = 0.7;
  constexpr int kTimes = 4000;
  int accepted = 0;
  for (int i = 0; i < kTimes; ++i) {
    request_.tokens.push_back(5);
    take({7}, {1, 2}, kRate);
    accepted += tokens_.size() == 2 ? 1 : 0;
    const Tokens before = tokens_;
    take({7}, {1, 2}, kRate);
    EXPECT_EQ(tokens_, before) << "the same position";
  }
  EXPECT_NEAR(accepted, kRate * kTimes, 0.03 * kTimes) << "four standard deviations";
}

TEST_F(StandingTokensTest, NothingBehindARowThatCouldDrawNone) {
  const StandingTokens standing = take({7, 8, 9}, {7, 8, -1, 10});
  EXPECT_EQ(tokens_, (Tokens{7, 8}));
  EXPECT_TRUE(standing.is_stuck);
  EXPECT_FALSE(take({7, 8}, {5, -1, 10}).is_stuck) << "a row behind a wrong draft means nothing";
  EXPECT_FALSE(take({50, 8}, {50, -1, 10}).is_stuck);
}

}  // namespace
}  // namespace minfer
