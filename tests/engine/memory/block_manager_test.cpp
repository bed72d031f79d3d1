#include "engine/memory/block_manager.h"

#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace minfer::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kBlockSize = 4;

uint64_t constant_hash(uint64_t, std::span<const TokenId>) {
  return 7;
}

BlockManager manager(int32_t num_blocks, BlockHash hash = xxh3_block_hash) {
  return BlockManager({.num_blocks = num_blocks, .block_size = kBlockSize, .hash = hash});
}

std::vector<TokenId> counting(int32_t num_tokens, TokenId from = 0) {
  std::vector<TokenId> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

Sequence sequence(std::vector<TokenId> tokens) {
  return Sequence("s", std::move(tokens), 1);
}

/// A sequence that shares its blocks only with sequences of the same salt.
struct Salted : Sequence {
  Salted(std::vector<TokenId> prompt, std::string salt) : Sequence("s", std::move(prompt), 1) {
    cache_salt = std::move(salt);
  }
};

std::vector<BlockId> match(const BlockManager& blocks, Sequence& sequence) {
  PrefixMatch found;
  blocks.match_prefix(sequence, found);
  return found.blocks;
}

void adopt(BlockManager& blocks, Sequence& sequence) {
  PrefixMatch found;
  blocks.match_prefix(sequence, found);
  blocks.adopt_prefix(sequence, found);
}

/// Allocates blocks for all tokens and publishes them, as if a step had computed them.
void compute(BlockManager& blocks, Sequence& sequence) {
  ASSERT_TRUE(blocks.allocate(sequence, sequence.size()));
  sequence.num_scheduled = sequence.num_computed = sequence.size();
  blocks.publish(sequence);
}

TEST(BlockManager, RejectsSizesThatMakeNoSense) {
  EXPECT_THROW(BlockManager({.num_blocks = 0}), Error);
  EXPECT_THROW(BlockManager({.num_blocks = 1, .block_size = 0}), Error);
  EXPECT_THROW(BlockManager({.num_blocks = 1 << 28, .block_size = 16}), Error)
      << "more slots than 32 bits count";
}

TEST(BlockManager, CountsBlocks) {
  const BlockManager blocks = manager(3);
  EXPECT_EQ(blocks.blocks_for(0), 0);
  EXPECT_EQ(blocks.blocks_for(1), 1);
  EXPECT_EQ(blocks.blocks_for(4), 1);
  EXPECT_EQ(blocks.blocks_for(5), 2);
  EXPECT_EQ(blocks.blocks_for(INT32_MAX), (INT32_MAX - 3) / 4 + 1);
}

TEST(BlockManager, AllocatesWhatIsMissingOrNothing) {
  BlockManager blocks = manager(3);
  Sequence a = sequence(counting(20));
  EXPECT_TRUE(blocks.allocate(a, 5));
  EXPECT_THAT(a.blocks, ElementsAre(0, 1));
  EXPECT_TRUE(blocks.allocate(a, 8)) << "covered already";
  EXPECT_EQ(a.blocks.size(), 2u);
  EXPECT_FALSE(blocks.allocate(a, 20));
  EXPECT_EQ(a.blocks.size(), 2u);
  EXPECT_EQ(blocks.num_free(), 1);
  EXPECT_EQ(blocks.num_live(), 2);
}

class PrefixLength : public ::testing::TestWithParam<int32_t> {};

TEST_P(PrefixLength, MatchesTheFullBlocksBeforeTheLastToken) {
  const int32_t num_tokens = GetParam();
  BlockManager blocks = manager(16);
  Sequence a = sequence(counting(num_tokens));
  compute(blocks, a);
  Sequence same = sequence(counting(num_tokens)), longer = sequence(counting(num_tokens + 1));
  EXPECT_EQ(match(blocks, same).size(), static_cast<size_t>((num_tokens - 1) / kBlockSize));
  EXPECT_EQ(match(blocks, longer).size(), static_cast<size_t>(num_tokens / kBlockSize));
}

INSTANTIATE_TEST_SUITE_P(AroundTheBlockSize, PrefixLength,
                         ::testing::Values(1, 3, 4, 5, 7, 8, 9, 15, 16, 17));

TEST(BlockManager, MatchesUpToTheFirstDifference) {
  BlockManager blocks = manager(16);
  Sequence a = sequence(counting(13));
  compute(blocks, a);
  Sequence b = sequence(counting(13));
  b.tokens[5] = 99;
  EXPECT_THAT(match(blocks, b), ElementsAre(a.blocks[0]));
  b.tokens[0] = 99;
  Sequence c = sequence(b.tokens);
  EXPECT_THAT(match(blocks, c), IsEmpty());
}

TEST(BlockManager, SharesNothingThatIsNotComputed) {
  BlockManager blocks = manager(16);
  Sequence a = sequence(counting(13)), b = sequence(counting(13));
  ASSERT_TRUE(blocks.allocate(a, 13));
  a.num_scheduled = 13;
  blocks.publish(a);
  EXPECT_THAT(match(blocks, b), IsEmpty());
  a.num_computed = 7;
  blocks.publish(a);
  EXPECT_THAT(match(blocks, b), ElementsAre(a.blocks[0])) << "the second block has 3 of 4 tokens";
}

TEST(BlockManager, AMatchTellsWhatIsLive) {
  BlockManager blocks = manager(16);
  Sequence a = sequence(counting(9)), b = sequence(counting(9));
  compute(blocks, a);
  PrefixMatch found;
  blocks.match_prefix(b, found);
  EXPECT_EQ(found.num_live, 2);
  blocks.release(a);
  blocks.match_prefix(b, found);
  EXPECT_EQ(found.blocks.size(), 2u);
  EXPECT_EQ(found.num_live, 0);
}

// Elsewhere, a hit was still on the free list when the same request took its new blocks from there.
TEST(BlockManager, AnAdoptedPrefixIsPinnedAtOnce) {
  BlockManager blocks = manager(4);
  Sequence a = sequence(counting(9)), b = sequence(counting(16));
  compute(blocks, a);
  blocks.release(a);
  EXPECT_EQ(blocks.num_cached(), 2);
  adopt(blocks, b);
  const std::vector<BlockId> adopted = b.blocks;
  EXPECT_EQ(adopted.size(), 2u);
  EXPECT_EQ(blocks.num_free(), 2);
  EXPECT_TRUE(blocks.allocate(b, 16));
  EXPECT_EQ(std::vector(b.blocks.begin(), b.blocks.begin() + 2), adopted);
  EXPECT_EQ(blocks.num_free(), 0);
  blocks.check(std::vector<const Sequence*>{&b});
}

TEST(BlockManager, ASharedBlockIsFreeWhenItsLastHolderLetsGo) {
  BlockManager blocks = manager(4);
  Sequence a = sequence(counting(5)), b = sequence(counting(5));
  compute(blocks, a);
  adopt(blocks, b);
  blocks.release(a);
  EXPECT_EQ(blocks.num_live(), 1);
  blocks.release(b);
  EXPECT_EQ(blocks.num_live(), 0);
  EXPECT_EQ(blocks.num_cached(), 1);
}

TEST(BlockManager, TakesBlocksWithoutContentFirstThenTheTailOfTheLeastRecentlyUsed) {
  BlockManager blocks = manager(6);
  Sequence old = sequence(counting(9)), recent = sequence(counting(10, 50));
  compute(blocks, old);
  compute(blocks, recent);
  const std::vector<BlockId> a = old.blocks, b = recent.blocks;
  blocks.release(old);
  blocks.release(recent);
  Sequence taker = sequence(counting(24, 100));
  ASSERT_TRUE(blocks.allocate(taker, 24));
  EXPECT_THAT(taker.blocks, ElementsAre(b[2], a[2], a[1], a[0], b[1], b[0]));
  EXPECT_EQ(blocks.num_cached(), 0);
}

TEST(BlockManager, ContentStaysUntilItsBlockIsTaken) {
  BlockManager blocks = manager(3);
  Sequence a = sequence(counting(9)), b = sequence(counting(4, 50)), again = sequence(counting(9));
  compute(blocks, a);
  blocks.release(a);
  ASSERT_TRUE(blocks.allocate(b, 8));
  EXPECT_EQ(match(blocks, again).size(), 1u) << "the partial block and the tail are gone, the head is there";
}

// Equal hashes can only be told apart by comparing their contents.
TEST(BlockManager, CollidingHashesAreHarmless) {
  BlockManager blocks = manager(16, constant_hash);
  Sequence a = sequence(counting(9)), b = sequence(counting(9, 50));
  compute(blocks, a);
  EXPECT_THAT(match(blocks, b), IsEmpty());
  compute(blocks, b);
  Sequence c = sequence(counting(9)), d = sequence(counting(9, 50));
  EXPECT_THAT(match(blocks, c), ElementsAre(a.blocks[0], a.blocks[1]));
  EXPECT_THAT(match(blocks, d), ElementsAre(b.blocks[0], b.blocks[1]));
}

TEST(BlockManager, TheSameTokensAfterAnotherPrefixAreAnotherContent) {
  BlockManager blocks = manager(16, constant_hash);
  const std::vector<TokenId> x = {1, 1, 1, 1, 2, 2, 2, 2}, y = {3, 3, 3, 3, 2, 2, 2, 2};
  Sequence a = sequence(x), b = sequence(y);
  compute(blocks, a);
  compute(blocks, b);
  Sequence tail = sequence({2, 2, 2, 2, 0}), c = sequence({3, 3, 3, 3, 2, 2, 2, 2, 0});
  EXPECT_THAT(match(blocks, tail), IsEmpty()) << "these tokens are known, but not as a beginning";
  EXPECT_THAT(match(blocks, c), ElementsAre(b.blocks[0], b.blocks[1]));
}

TEST(BlockManager, AnotherSaltIsAnotherContentEvenIfTheHashesAreEqual) {
  for (const BlockHash hash : {xxh3_block_hash, BlockHash{constant_hash}}) {
    BlockManager blocks = manager(16, hash);
    Salted a(counting(9), "a"), b(counting(9), "b");
    Sequence plain = sequence(counting(9));
    for (Sequence* each : {static_cast<Sequence*>(&a), static_cast<Sequence*>(&b), &plain}) {
      EXPECT_THAT(match(blocks, *each), IsEmpty());
      compute(blocks, *each);
    }
    blocks.check(std::vector<const Sequence*>{&a, &b, &plain});
    Salted like_a(counting(9), "a"), like_b(counting(9), "b"), like_neither(counting(9), "c");
    Sequence like_plain = sequence(counting(9));
    EXPECT_THAT(match(blocks, like_a), ElementsAre(a.blocks[0], a.blocks[1]));
    EXPECT_THAT(match(blocks, like_b), ElementsAre(b.blocks[0], b.blocks[1]));
    EXPECT_THAT(match(blocks, like_plain), ElementsAre(plain.blocks[0], plain.blocks[1]));
    EXPECT_THAT(match(blocks, like_neither), IsEmpty());
  }
}

TEST(BlockManager, HashesOfTheSamePromptDifferByKeyAndBySalt) {
  const auto hash_under = [](uint64_t key, const std::string& salt) {
    BlockManager blocks({.num_blocks = 4, .block_size = kBlockSize, .hash_key = key});
    Salted a(counting(9), salt);
    match(blocks, a);
    return a.block_hashes.at(0);
  };
  EXPECT_EQ(hash_under(1, ""), hash_under(1, ""));
  EXPECT_NE(hash_under(1, ""), hash_under(2, ""));
  EXPECT_EQ(hash_under(1, "a"), hash_under(1, "a"));
  EXPECT_NE(hash_under(1, "a"), hash_under(1, "b"));
  EXPECT_NE(hash_under(1, "a"), hash_under(2, "a"));
}

TEST(BlockManager, ChainedHashesDependOnEverythingBefore) {
  const std::vector<TokenId> x = {1, 2, 3, 4}, y = {1, 2, 3, 5};
  EXPECT_NE(xxh3_block_hash(0, x), xxh3_block_hash(0, y));
  EXPECT_NE(xxh3_block_hash(1, x), xxh3_block_hash(2, x));
  EXPECT_EQ(xxh3_block_hash(1, x), xxh3_block_hash(1, x));
}

// Two sequences computed the same blocks in the same step. After one copy is evicted, the other is found
// instead, and so are the blocks that were published behind either.
TEST(BlockManager, ATwinTakesThePlaceOfAnEvictedBlock) {
  BlockManager blocks = manager(6);
  Sequence a = sequence(counting(4)), b = sequence(counting(12));
  ASSERT_TRUE(blocks.allocate(a, 4));
  ASSERT_TRUE(blocks.allocate(b, 12));
  a.num_scheduled = a.num_computed = 4;
  b.num_scheduled = b.num_computed = 12;
  blocks.publish(a);
  blocks.publish(b);
  blocks.check(std::vector<const Sequence*>{&a, &b});
  blocks.release(a);
  Sequence taker = sequence(counting(12, 100));
  ASSERT_TRUE(blocks.allocate(taker, 12));
  EXPECT_EQ(blocks.num_cached(), 0);
  Sequence c = sequence(counting(12));
  EXPECT_THAT(match(blocks, c), ElementsAre(b.blocks[0], b.blocks[1]));
}

TEST(BlockManager, WithoutPrefixCachingNothingIsKept) {
  BlockManager blocks({.num_blocks = 4, .block_size = kBlockSize, .enable_prefix_caching = false});
  Sequence a = sequence(counting(9)), b = sequence(counting(9));
  compute(blocks, a);
  EXPECT_THAT(match(blocks, b), IsEmpty());
  blocks.release(a);
  EXPECT_EQ(blocks.num_cached(), 0);
  EXPECT_EQ(blocks.num_free(), 4);
  blocks.check({});
}

// Controls: check() notices the errors that it is for.

class CheckControl : public ::testing::Test {
 protected:
  CheckControl() : blocks_(manager(8)), a_(sequence(counting(9))) { compute(blocks_, a_); }

  std::string failure() { return failure({&a_}); }

  std::string failure(const std::vector<const Sequence*>& running) {
    try {
      blocks_.check(running);
    } catch (const std::logic_error& error) {
      return error.what();
    }
    return "";
  }

  BlockManager blocks_;
  Sequence a_;
};

TEST_F(CheckControl, Passes) {
  EXPECT_EQ(failure(), "");
}

TEST_F(CheckControl, NoticesALeakedBlock) {
  Sequence b = sequence(counting(3, 50));
  ASSERT_TRUE(blocks_.allocate(b, 3));
  EXPECT_THAT(failure(), HasSubstr("ref_count 1, but held 0 times"));
}

TEST_F(CheckControl, NoticesABlockThatWasFreedUnderItsHolder) {
  Sequence copy = sequence(a_.tokens);
  copy.blocks = a_.blocks;
  blocks_.release(copy);
  EXPECT_THAT(failure(), HasSubstr("ref_count 0, but held 1 times"));
}

TEST_F(CheckControl, NoticesABlockThatWasSharedTooEarly) {
  a_.num_computed = 7;
  EXPECT_THAT(failure(), HasSubstr("2 blocks published with 7 tokens computed"));
}

TEST_F(CheckControl, NoticesOtherTokensThanThePublishedOnes) {
  a_.tokens[2] = 99;
  EXPECT_THAT(failure(), HasSubstr("published with other tokens"));
}

TEST_F(CheckControl, NoticesTooFewBlocks) {
  a_.num_scheduled = 13;
  EXPECT_THAT(failure(), HasSubstr("3 blocks for 13 scheduled tokens"));
}

TEST_F(CheckControl, NoticesATailThatOutlivesItsHead) {
  Sequence head = sequence(a_.tokens), tail = sequence(a_.tokens), taker = sequence(counting(24, 50));
  head.blocks = {a_.blocks[0]};
  tail.blocks = {a_.blocks[1], a_.blocks[2]};
  blocks_.release(head);
  blocks_.release(tail);
  ASSERT_TRUE(blocks_.allocate(taker, 24));
  EXPECT_EQ(blocks_.num_cached(), 2) << "six free blocks without content go first";
  ASSERT_TRUE(blocks_.allocate(taker, 28));
  EXPECT_THAT(failure({&taker}), HasSubstr("predecessor's content was evicted first"));
}

}  // namespace
}  // namespace minfer::test
