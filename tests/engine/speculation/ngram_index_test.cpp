#include <random>

#include <gtest/gtest.h>

#include "engine/speculation/ngram_drafter.h"

namespace minfer {
namespace {

/// The newest earlier place of the longest n-gram at the end of `tokens`, found by searching everywhere.
NgramIndex::Match look_everywhere(std::span<const TokenId> tokens, int32_t min_length, int32_t max_length) {
  const auto size = static_cast<int32_t>(tokens.size());
  for (int32_t length = std::min(max_length, size - 1); length >= min_length; --length) {
    for (int32_t end = size - 1; end >= length; --end) {
      const auto there = tokens.subspan(static_cast<size_t>(end - length), static_cast<size_t>(length));
      if (std::ranges::equal(there, tokens.last(static_cast<size_t>(length)))) return {end, length};
    }
  }
  return {};
}

TEST(NgramIndex, FindsWhatLookingEverywhereFinds) {
  std::mt19937 random(3);
  for (const auto& [min_length, max_length] :
       {std::pair(1, 4), std::pair(2, 3), std::pair(3, 8), std::pair(1, 1)}) {
    NgramIndex index(min_length, max_length, 4000);
    std::vector<TokenId> tokens;
    int32_t num_found = 0, num_there = 0, num_same = 0;
    for (int32_t i = 0; i < 2000; ++i) {
      tokens.push_back(static_cast<TokenId>(random() % 40));
      const NgramIndex::Match expected = look_everywhere(tokens, min_length, max_length);
      const NgramIndex::Match found = index.add(tokens);
      num_there += expected.next >= 0;
      num_same += expected.next >= 0 && found.next == expected.next;
      if (found.next < 0) continue;
      ++num_found;
      ASSERT_LT(found.next, static_cast<int32_t>(tokens.size()));
      ASSERT_LE(found.length, expected.length);
      const auto there = std::span(tokens).subspan(static_cast<size_t>(found.next - found.length),
                                                   static_cast<size_t>(found.length));
      ASSERT_TRUE(std::ranges::equal(there, std::span(tokens).last(there.size())));
    }
    EXPECT_GT(num_there, 0);
    EXPECT_GE(num_found, num_there * 9 / 10) << "collisions may forget a few places";
    EXPECT_GE(num_same, num_there * 8 / 10);
  }
}

TEST(NgramIndex, GrowsWithItsSequenceAndForgetsTheOldest) {
  NgramIndex index(2, 4, 0);
  std::mt19937 random(4);
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < NgramIndex::kMostPlaces; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % 100000));
    index.add(tokens);
  }
  int32_t num_found = 0;
  const size_t begin = tokens.size() - 1000;
  for (size_t i = begin; i < begin + 500; ++i) {
    tokens.push_back(tokens[i]);
    num_found += index.add(tokens).next == static_cast<int32_t>(i) + 1;
  }
  EXPECT_GT(num_found, 450) << "a text of 1,000 tokens ago is known";
}

TEST(NgramDrafter, GoesOnWithWhatIsRightAndCountsWhatFollows) {
  NgramHitRates all = NgramHitRates::first_guess();
  NgramDrafter drafter({.ngram_max = 3, .ngram_min = 1}, 6, all);
  std::vector<TokenId> tokens{1, 2, 3, 4, 1, 2};
  std::vector<TokenId> drafts;
  drafter.follow(tokens);
  drafter.propose(tokens, 3, drafts);
  EXPECT_EQ(drafts, (std::vector<TokenId>{3, 4, 1}));
  drafter.propose(tokens, 6, drafts);
  EXPECT_EQ(drafts, (std::vector<TokenId>{3, 4, 1, 2, 3, 4})) << "and round again";
  const float before = drafter.hit_rate(0);
  tokens.insert(tokens.end(), {3, 4});
  drafter.follow(tokens);
  EXPECT_GT(drafter.hit_rate(0), before) << "a longer match";
  drafter.propose(tokens, 1, drafts);
  EXPECT_EQ(drafts, std::vector<TokenId>{1});
  tokens.push_back(9);
  drafter.follow(tokens);
  EXPECT_EQ(drafter.hit_rate(0), 0.0f) << "new: nothing is known to follow";
  drafter.propose(tokens, 3, drafts);
  EXPECT_TRUE(drafts.empty());
}

TEST(NgramDrafter, LearnsThatATextDoesNotRepeatItself) {
  NgramHitRates all = NgramHitRates::first_guess();
  NgramDrafter drafter({.ngram_max = 1, .ngram_min = 1}, 0, all);
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 200; ++i) {  // something new follows 0 each time
    tokens.push_back(0);
    tokens.push_back(100 + i);
  }
  tokens.push_back(0);
  drafter.follow(tokens);
  EXPECT_LT(drafter.hit_rate(0), 0.1f);
  NgramDrafter next({.ngram_max = 1, .ngram_min = 1}, 0, all);
  next.follow(std::vector<TokenId>{5, 5});
  EXPECT_LT(next.hit_rate(0), 0.3f) << "a new sequence begins with what others have found";
}

}  // namespace
}  // namespace minfer
