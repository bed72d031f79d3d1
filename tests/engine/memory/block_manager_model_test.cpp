// Random operations on a block manager beside a naive one that keeps whole prefixes in maps: the same
// matches, blocks and counts after each. A mirror that only hears of the changes knows what is cached.

#include <algorithm>
#include <list>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/memory/block_manager.h"
#include "engine/memory/kv_events.h"
#include "tests/support/engine/kv_mirror.h"
#include "tests/support/random_operations.h"

namespace minfer::test {
namespace {

/// The salt as a negative number, then tokens.
using Prefix = std::vector<TokenId>;

/// The meaning of a block manager, without hashes: the content of each published block, from the
/// sequence's first token on.
struct NaiveBlocks {
  explicit NaiveBlocks(int32_t num_blocks) {
    for (BlockId id = 0; id < num_blocks; ++id)
      free.push_back(id);
  }

  bool knows(const Prefix& prefix) const { return copies.contains(prefix); }

  void hold(BlockId id) {
    if (holders[id]++ == 0) free.remove(id);
  }

  BlockId take() {
    const BlockId id = free.front();
    forget(id);
    hold(id);
    return id;
  }

  void let_go(BlockId id) {
    if (--holders[id] > 0) return;
    if (content.contains(id)) {
      free.push_back(id);
    } else {
      free.push_front(id);
    }
  }

  void publish(BlockId id, const Prefix& prefix) {
    content[id] = prefix;
    ++copies[prefix];
  }

  void forget(BlockId id) {
    const auto known = content.find(id);
    if (known == content.end()) return;
    if (--copies[known->second] == 0) copies.erase(known->second);
    content.erase(known);
  }

  int32_t num_cached() const {
    return static_cast<int32_t>(
        std::ranges::count_if(free, [&](BlockId id) { return content.contains(id); }));
  }

  std::list<BlockId> free;  ///< in the order in which they are taken
  std::map<BlockId, int32_t> holders;
  std::map<BlockId, Prefix> content;
  std::map<Prefix, int32_t> copies;
};

BlockHash hash_of(uint64_t kind) {
  switch (kind % 3) {
    case 0:
      return [](uint64_t, std::span<const TokenId>) -> uint64_t { return 7; };
    case 1:
      return [](uint64_t parent, std::span<const TokenId> tokens) {
        return xxh3_block_hash(parent, tokens) % 3;
      };
    default:
      return xxh3_block_hash;
  }
}

/// Counts of the operations' effects, by which a test shows that it tested what it meant to.
struct Counts {
  int64_t hits = 0, taken = 0, refused = 0, evicted = 0, mirrored = 0, hidden = 0;
};

/// A block manager and its naive twin under the same operations.
class Pair {
 public:
  Pair(uint64_t seed, Counts& counts)
      : counts_(counts),
        random_(seed),
        block_size_(pick(1, 4)),
        blocks_({.num_blocks = pick(1, 24), .block_size = block_size_, .hash = hash_of(seed)}),
        naive_(blocks_.num_blocks()),
        hashes_collide_(seed % 3 != 2) {
    events_.block_size = block_size_;
    blocks_.record_events(&events_);
  }

  void operate() {
    const int32_t kind = pick(0, 9);
    if (sequences_.empty() || kind < 2) {
      arrive();
    } else if (kind < 5) {
      grow(any());
    } else if (kind < 8) {
      compute(any());
    } else {
      leave(any());
    }
    EXPECT_EQ(blocks_.num_free(), static_cast<int32_t>(naive_.free.size()));
    EXPECT_EQ(blocks_.num_free() + blocks_.num_live(), blocks_.num_blocks());
  }

  void check() const {
    EXPECT_EQ(blocks_.num_cached(), naive_.num_cached());
    std::vector<const Sequence*> running;
    for (const auto& each : sequences_)
      running.push_back(each.get());
    blocks_.check(running);
  }

  void check_mirror() {
    if (pick(0, 19) == 0) {  // as after a lost event
      events_.clear();
      blocks_.announce_all();
    }
    mirror_.apply(events_);
    events_.clear();
    std::set<Prefix> cached;
    for (const auto& [prefix, copies] : naive_.copies) {
      if (prefix.front() == -1) cached.emplace(prefix.begin() + 1, prefix.end());
    }
    const std::set<Prefix> mirrored = mirror_.prefixes();
    ASSERT_EQ(mirrored.size(), mirror_.size()) << "two hashes for a prefix";
    ASSERT_TRUE(std::ranges::includes(cached, mirrored)) << "the mirror holds what is not cached";
    ASSERT_TRUE(hashes_collide_ || cached == mirrored) << "the mirror lacks what is cached";
    counts_.mirrored += static_cast<int64_t>(mirrored.size());
    counts_.hidden += static_cast<int64_t>(cached.size() - mirrored.size());
  }

  void leave_all() {
    while (!sequences_.empty())
      leave(any());
    EXPECT_EQ(blocks_.num_free(), blocks_.num_blocks());
  }

 private:
  int32_t pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }
  Sequence& any() {
    return *sequences_[static_cast<size_t>(pick(0, static_cast<int32_t>(sequences_.size()) - 1))];
  }

  Prefix prefix(const Sequence& sequence, int32_t num_blocks) const {
    Prefix prefix{-1 - static_cast<TokenId>(sequence.cache_salt.size())};
    prefix.insert(prefix.end(), sequence.tokens.begin(), sequence.tokens.begin() + num_blocks * block_size_);
    return prefix;
  }

  /// Prompts of few distinct tokens, so that many share prefixes and some tokens recur behind
  /// another prefix.
  void arrive() {
    Prefix prompt(static_cast<size_t>(pick(1, 6 * block_size_)));
    for (TokenId& token : prompt)
      token = pick(0, 9) == 0 ? 1 : 0;
    auto added = std::make_unique<Sequence>("s", prompt, 1);
    added->cache_salt.assign(static_cast<size_t>(std::max(0, pick(-3, 2))), 'x');
    PrefixMatch match;
    blocks_.match_prefix(*added, match);
    int32_t num_live = 0;
    for (size_t i = 0; i < match.blocks.size(); ++i) {
      const BlockId id = match.blocks[i];
      ASSERT_TRUE(naive_.content.contains(id));
      ASSERT_EQ(naive_.content[id], prefix(*added, static_cast<int32_t>(i) + 1)) << "a hit on other tokens";
      num_live += naive_.holders[id] > 0;
    }
    const auto num_matched = static_cast<int32_t>(match.blocks.size());
    const bool could_be_longer = (num_matched + 1) * block_size_ < added->size();
    ASSERT_FALSE(could_be_longer && naive_.knows(prefix(*added, num_matched + 1))) << "a hit was missed";
    ASSERT_EQ(match.num_live, num_live);
    blocks_.adopt_prefix(*added, match);
    for (const BlockId id : match.blocks)
      naive_.hold(id);
    counts_.hits += num_matched;
    sequences_.push_back(std::move(added));
  }

  void grow(Sequence& sequence) {
    if (sequence.num_scheduled == sequence.size()) sequence.tokens.push_back(pick(0, 1));
    const int32_t num_tokens = pick(sequence.num_scheduled + 1, sequence.size());
    const size_t num_before = sequence.blocks.size();
    const size_t num_new = static_cast<size_t>(blocks_.blocks_for(num_tokens)) - num_before;
    ASSERT_EQ(blocks_.allocate(sequence, num_tokens), num_new <= naive_.free.size());
    if (sequence.blocks.size() == num_before && num_new > 0) {
      ++counts_.refused;
      return;
    }
    sequence.num_scheduled = num_tokens;
    const int32_t num_cached = naive_.num_cached();
    for (size_t i = num_before; i < sequence.blocks.size(); ++i)
      ASSERT_EQ(sequence.blocks[i], naive_.take());
    counts_.taken += static_cast<int64_t>(num_new);
    counts_.evicted += num_cached - naive_.num_cached();
  }

  void compute(Sequence& sequence) {
    sequence.num_computed = pick(sequence.num_computed, sequence.num_scheduled);
    const int32_t num_before = sequence.num_published_blocks;
    blocks_.publish(sequence);
    for (int32_t i = num_before; i < sequence.num_computed / block_size_; ++i) {
      naive_.publish(sequence.blocks[static_cast<size_t>(i)], prefix(sequence, i + 1));
    }
  }

  void leave(Sequence& sequence) {
    const std::vector<BlockId> held = sequence.blocks;
    blocks_.release(sequence);
    std::for_each(held.rbegin(), held.rend(), [&](BlockId id) { naive_.let_go(id); });
    std::erase_if(sequences_, [&](const auto& each) { return each.get() == &sequence; });
  }

  Counts& counts_;
  std::mt19937_64 random_;
  int32_t block_size_;
  BlockManager blocks_;
  NaiveBlocks naive_;
  const bool hashes_collide_;
  KvEventBatch events_;
  KvMirror mirror_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
};

TEST(BlockManagerModel, DoesWhatTheNaiveOneDoes) {
  constexpr int64_t kOperationsPerPair = 400;
  Counts counts;
  for (int64_t i = 0; i < num_random_operations() / kOperationsPerPair; ++i) {
    const uint64_t seed = first_seed() + static_cast<uint64_t>(i);
    SCOPED_TRACE(fmt::format("seed {}: repeat with {}={} {}={}", seed, kSeedVariable, seed,
                             kOperationsVariable, kOperationsPerPair));
    Pair pair(seed, counts);
    for (int64_t operation = 0; operation < kOperationsPerPair; ++operation) {
      pair.operate();
      if (operation % 8 == 0) {
        pair.check();
        pair.check_mirror();
      }
      if (HasFailure()) return;
    }
    pair.leave_all();
    pair.check();
    pair.check_mirror();
    if (HasFailure()) return;
  }
  EXPECT_GT(counts.hits, 100);
  EXPECT_GT(counts.taken, 100);
  EXPECT_GT(counts.refused, 100);
  EXPECT_GT(counts.evicted, 100);
  EXPECT_GT(counts.mirrored, 100);
  EXPECT_GT(counts.hidden, 100);
  RecordProperty("hits", std::to_string(counts.hits));
  RecordProperty("taken", std::to_string(counts.taken));
  RecordProperty("refused", std::to_string(counts.refused));
  RecordProperty("evicted", std::to_string(counts.evicted));
}

}  // namespace
}  // namespace minfer::test
