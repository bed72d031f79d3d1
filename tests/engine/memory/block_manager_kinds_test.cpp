// Layers with windows have their own block table, whose blocks come from the same pool.
#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/memory/block_manager.h"
#include "engine/memory/kv_events.h"
#include "kernels/base/error.h"
#include "tests/support/engine/kv_mirror.h"

namespace minfer::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Blocks of 4 tokens for layers with windows, of 8 for the others.
BlockManagerOptions two_kinds(int32_t num_blocks, int32_t window) {
  return {.num_blocks = num_blocks,
          .block_size = 8,
          .window = window,
          .window_block_size = 4,
          .max_tokens_under_way = 8};
}

std::vector<TokenId> counted_tokens(int32_t num_tokens) {
  std::vector<TokenId> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// Computes as the scheduler does, in steps of up to 8 tokens.
void compute_up_to(BlockManager& blocks, Sequence& sequence, int32_t num_tokens) {
  while (sequence.num_computed < num_tokens) {
    const int32_t end = std::min(sequence.num_computed + 8, num_tokens);
    ASSERT_TRUE(blocks.allocate(sequence, end));
    sequence.num_scheduled = sequence.num_computed = end;
    blocks.publish(sequence);
    blocks.release_behind_window(sequence);
  }
}

PrefixMatch match_of(const BlockManager& blocks, Sequence& sequence) {
  PrefixMatch match;
  blocks.match_prefix(sequence, match);
  return match;
}

TEST(BlockManagerKinds, SizesThatDoNotDivideAreRefused) {
  EXPECT_THROW(BlockManager({.num_blocks = 4, .block_size = 8, .window = 3, .window_block_size = 3}), Error);
  EXPECT_THROW(BlockManager({.num_blocks = 4, .block_size = 8, .window = 3, .window_block_size = -1}), Error);
}

TEST(BlockManagerKinds, OneKeepsAllAndTheOtherWhatTheNextTokenReads) {
  BlockManager blocks(two_kinds(20, 6));
  Sequence sequence("s", counted_tokens(40), 1);
  compute_up_to(blocks, sequence, 9);  // token 9 sees tokens 4 to 9
  EXPECT_EQ(sequence.blocks.size(), 2u);
  EXPECT_EQ(sequence.window_blocks.size(), 3u);
  EXPECT_EQ(sequence.num_freed_window_blocks, 1);
  compute_up_to(blocks, sequence, 40);
  EXPECT_EQ(sequence.blocks.size(), 5u);
  EXPECT_EQ(sequence.num_freed_blocks, 0);
  EXPECT_EQ(sequence.window_blocks.size() - static_cast<size_t>(sequence.num_freed_window_blocks), 2u)
      << "tokens 35 to 40";
  EXPECT_EQ(sequence.num_held_blocks(), 7);
  EXPECT_EQ(blocks.num_live(), 7);
  blocks.release(sequence);
  EXPECT_EQ(blocks.num_free(), 20);
  EXPECT_THAT(sequence.window_blocks, IsEmpty());
  EXPECT_EQ(sequence.num_freed_window_blocks, 0);
  blocks.check({});
}

TEST(BlockManagerKinds, WhatASequenceAloneNeedsIsEnough) {
  for (const int32_t window : {1, 2, 5, 8, 17}) {
    for (int32_t num_blocks = 4; num_blocks < 24; ++num_blocks) {
      BlockManager blocks(two_kinds(num_blocks, window));
      const auto num_tokens = static_cast<int32_t>(blocks.most_tokens());
      Sequence sequence("s", counted_tokens(num_tokens), 1);
      compute_up_to(blocks, sequence, num_tokens);
      EXPECT_EQ(sequence.num_computed, num_tokens) << num_blocks << " blocks, window " << window;
    }
  }
}

TEST(BlockManagerKinds, AHitNeedsNothingBehindItsWindow) {
  BlockManager blocks(two_kinds(13, 6));
  Sequence first("a", counted_tokens(40), 1), second("b", counted_tokens(41), 1);
  compute_up_to(blocks, first, 40);
  blocks.release(first);
  Sequence other("c", std::vector<TokenId>(17, 7), 1);
  ASSERT_TRUE(blocks.allocate(other, 16));  // takes blocks that are free for longest: blocks behind windows
  const PrefixMatch match = match_of(blocks, second);
  EXPECT_EQ(match.blocks.size(), 5u);
  EXPECT_EQ(match.num_before_window, 8) << "token 40 sees 35 to 40";
  EXPECT_EQ(match.window_blocks.size(), 2u);
  EXPECT_EQ(match.num_live, 0);
  blocks.adopt_prefix(second, match);
  EXPECT_EQ(second.num_computed, 40);
  EXPECT_EQ(second.num_held_blocks(), 7);
  const Sequence* running[] = {&second};
  blocks.release(other);
  blocks.check(running);
  compute_up_to(blocks, second, 41);
  blocks.check(running);
}

TEST(BlockManagerKinds, APrefixEndsWhereItsWindowIsStillThere) {
  BlockManager blocks(two_kinds(24, 6));
  Sequence sequence("a", counted_tokens(40), 1);
  compute_up_to(blocks, sequence, 40);
  // Both kinds still have their blocks of 32 tokens, since none has been taken.
  std::vector<TokenId> branch = counted_tokens(40);
  branch[35] = 99;
  Sequence branched("b", branch, 1);
  EXPECT_EQ(match_of(blocks, branched).blocks.size(), 4u);
  // Takes all free blocks: those behind the window.
  Sequence other("c", std::vector<TokenId>(60, 7), 1);
  const int32_t num_free = blocks.num_free();
  ASSERT_TRUE(blocks.allocate(other, 44));
  ASSERT_EQ(blocks.num_free(), num_free - 17);
  ASSERT_EQ(blocks.num_free(), 0);
  EXPECT_THAT(match_of(blocks, branched).blocks, IsEmpty()) << "of no prefix that ends in front of token 35";
  Sequence same("d", counted_tokens(44), 1);
  const PrefixMatch match = match_of(blocks, same);
  EXPECT_EQ(match.blocks.size(), 5u);
  EXPECT_EQ(match.num_live, 7);
}

TEST(BlockManagerKinds, BlocksOfWindowsAreNotAnnounced) {
  BlockManager blocks(two_kinds(20, 6));
  KvEventBatch events;
  events.block_size = blocks.block_size();
  blocks.record_events(&events);
  Sequence sequence("a", counted_tokens(40), 1);
  compute_up_to(blocks, sequence, 40);
  EXPECT_EQ(events.hashes.size(), 5u);
  events.clear();
  blocks.announce_all();
  EXPECT_EQ(events.hashes.size(), 5u);
  blocks.record_events(nullptr);
}

/// The content of published blocks, from the sequences that wrote them.
class KindsTraffic {
 public:
  KindsTraffic(uint32_t seed, int32_t parts, int32_t window)
      : random_(seed),
        parts_(parts),
        blocks_({.num_blocks = 40,
                 .block_size = parts * kPart,
                 .enable_prefix_caching = seed % 4 != 0,
                 .window = window,
                 .window_block_size = kPart,
                 .max_tokens_under_way = 12}) {
    events_.block_size = blocks_.block_size();
    blocks_.record_events(&events_);
  }

  void operate() {
    if (running_.size() < 4) arrive();
    Sequence& sequence = *running_[pick(running_.size())];
    const int32_t end = std::min(sequence.num_computed + 1 + static_cast<int32_t>(pick(12)), kMostTokens);
    if (pick(10) == 0 || end == sequence.num_computed || !grow(sequence, end)) {
      blocks_.release(sequence);
      std::erase_if(running_, [&](const auto& each) { return each.get() == &sequence; });
      return;
    }
    // As after rejected drafts.
    const auto num_refused = static_cast<int32_t>(pick(3));
    sequence.num_scheduled = sequence.num_computed = std::max(sequence.num_computed + 1, end - num_refused);
    blocks_.publish(sequence);
    note(sequence);
    blocks_.release_behind_window(sequence);
  }

  void check(int32_t operation) {
    if (operation % 50 == 0) {
      events_.clear();
      blocks_.announce_all();
    }
    mirror_.apply(events_);
    events_.clear();
    std::vector<const Sequence*> all;
    for (const auto& each : running_)
      all.push_back(each.get());
    blocks_.check(all);
  }

  int64_t num_hits() const { return num_hits_; }

 private:
  static constexpr int32_t kPart = 4, kMostTokens = 90;
  using Content = std::pair<std::vector<TokenId>, int32_t>;  ///< tokens up to the block's end, part

  size_t pick(size_t size) { return static_cast<size_t>(random_() % size); }

  Content content(const Sequence& sequence, int32_t num_tokens, int32_t part) const {
    return {{sequence.tokens.begin(), sequence.tokens.begin() + num_tokens}, part};
  }

  void arrive() {
    std::vector<TokenId> tokens = counted_tokens(kMostTokens);
    for (size_t at = 8 * pick(12); at < tokens.size(); ++at)
      tokens[at] += static_cast<TokenId>(pick(2));
    auto& sequence = *running_.emplace_back(std::make_unique<Sequence>("s", std::move(tokens), 1));
    const PrefixMatch match = match_of(blocks_, sequence);
    for (size_t i = 0; i < match.blocks.size(); ++i) {
      const auto end = static_cast<int32_t>(i + 1) * blocks_.block_size();
      ASSERT_EQ(contents_.at(match.blocks[i]), content(sequence, end, -1)) << "a hit on other tokens";
    }
    for (size_t i = 0; i < match.window_blocks.size(); ++i) {
      const int32_t place = match.num_before_window + static_cast<int32_t>(i);
      const int32_t end = (place / parts_ + 1) * blocks_.block_size();
      ASSERT_EQ(contents_.at(match.window_blocks[i]), content(sequence, end, place % parts_));
    }
    num_hits_ += std::ssize(match.blocks);
    blocks_.adopt_prefix(sequence, match);
    ASSERT_EQ(sequence.window_blocks.size(), match.blocks.size() * static_cast<size_t>(parts_));
  }

  bool grow(Sequence& sequence, int32_t end) {
    const int32_t num_free = blocks_.num_free(), num_lacking = blocks_.num_lacking(sequence, end);
    const bool grown = blocks_.allocate(sequence, end);
    EXPECT_EQ(grown, num_lacking <= num_free);
    EXPECT_EQ(blocks_.num_free(), grown ? num_free - num_lacking : num_free);
    if (grown) sequence.num_scheduled = end;
    return grown;
  }

  void note(const Sequence& sequence) {
    for (int32_t i = 0; i < sequence.num_published_blocks; ++i) {
      const int32_t end = (i + 1) * blocks_.block_size();
      contents_[sequence.blocks[static_cast<size_t>(i)]] = content(sequence, end, -1);
      for (int32_t part = 0; part < parts_; ++part) {
        const BlockId id = sequence.window_blocks[static_cast<size_t>(i * parts_ + part)];
        if (id != kFreedBlock) contents_[id] = content(sequence, end, part);
      }
    }
  }

  std::mt19937 random_;
  int32_t parts_;
  BlockManager blocks_;
  KvEventBatch events_;
  KvMirror mirror_;
  std::vector<std::unique_ptr<Sequence>> running_;
  std::map<BlockId, Content> contents_;
  int64_t num_hits_ = 0;
};

TEST(BlockManagerKinds, InvariantsHoldUnderRandomOperations) {
  int64_t num_hits = 0;
  uint32_t seed = 0;
  for (const int32_t parts : {1, 2, 5}) {
    for (const int32_t window : {1, 3, 4, 9, 30}) {
      KindsTraffic traffic(++seed, parts, window);
      for (int32_t i = 0; i < 1000; ++i) {
        traffic.operate();
        ASSERT_NO_THROW(traffic.check(i)) << parts << " parts, window " << window << ", operation " << i;
        if (testing::Test::HasFailure()) return;
      }
      num_hits += traffic.num_hits();
    }
  }
  EXPECT_GT(num_hits, 500);
}

}  // namespace
}  // namespace minfer::test
