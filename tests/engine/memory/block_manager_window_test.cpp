// Blocks behind a window that every layer has are given back while their sequence runs.
#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/memory/kv_events.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/paths.h"

namespace minfer::test {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kTokensOfBlock = 4;

std::vector<TokenId> tokens_up_to(int32_t num_tokens) {
  std::vector<TokenId> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

void compute_in_window(BlockManager& blocks, Sequence& sequence, int32_t num_tokens) {
  ASSERT_TRUE(blocks.allocate(sequence, num_tokens));
  sequence.num_scheduled = sequence.num_computed = num_tokens;
  blocks.publish(sequence);
  blocks.release_behind_window(sequence);
  const Sequence* running[] = {&sequence};
  blocks.check(running);
}

TEST(BlockManagerWindow, KeepsWhatTheNextTokenReads) {
  for (const bool caching : {false, true}) {
    BlockManager blocks(
        {.num_blocks = 20, .block_size = kTokensOfBlock, .enable_prefix_caching = caching, .window = 6});
    Sequence sequence("s", tokens_up_to(40), 1);
    compute_in_window(blocks, sequence, 9);  // token 9 sees tokens 4 to 9
    EXPECT_THAT(sequence.blocks, ElementsAre(kFreedBlock, 1, 2));
    compute_in_window(blocks, sequence, 12);  // token 12 sees tokens 7 to 12
    EXPECT_THAT(sequence.blocks, ElementsAre(kFreedBlock, 1, 2));
    compute_in_window(blocks, sequence, 13);  // token 13 sees tokens 8 to 13
    EXPECT_EQ(sequence.num_freed_blocks, 2);
    compute_in_window(blocks, sequence, 40);
    EXPECT_EQ(sequence.num_held_blocks(), 2) << "tokens 35 to 40";
    EXPECT_EQ(blocks.num_live(), sequence.num_held_blocks());
    EXPECT_EQ(blocks.num_cached(), caching ? 8 : 0) << "found until they are taken";
    blocks.release(sequence);
    EXPECT_EQ(blocks.num_free(), 20);
    EXPECT_EQ(sequence.num_freed_blocks, 0);
    blocks.check({});
  }
}

TEST(BlockManagerWindow, OfNoneNothingIsGivenBack) {
  BlockManager blocks({.num_blocks = 20, .block_size = kTokensOfBlock});
  Sequence sequence("s", tokens_up_to(40), 1);
  compute_in_window(blocks, sequence, 40);
  EXPECT_EQ(sequence.num_held_blocks(), 10);
}

TEST(BlockManagerWindow, WhatAnotherSequenceHoldsStays) {
  BlockManager blocks({.num_blocks = 20, .block_size = kTokensOfBlock, .window = 4});
  Sequence first("a", tokens_up_to(17), 1), second("b", tokens_up_to(17), 1);
  ASSERT_TRUE(blocks.allocate(first, 16));
  first.num_scheduled = first.num_computed = 16;
  blocks.publish(first);
  PrefixMatch found;
  blocks.match_prefix(second, found);
  blocks.adopt_prefix(second, found);
  ASSERT_EQ(second.blocks.size(), 4u);
  blocks.release_behind_window(first);
  EXPECT_EQ(first.num_freed_blocks, 3);
  const Sequence* running[] = {&first, &second};
  blocks.check(running);
  EXPECT_EQ(blocks.num_live(), 4);
  blocks.release_behind_window(second);
  EXPECT_EQ(blocks.num_live(), 1);
  blocks.check(running);
}

TEST(BlockManagerWindow, APrefixWhoseHeadIsTakenIsComputedAgain) {
  BlockManager blocks({.num_blocks = 6, .block_size = kTokensOfBlock, .window = 4});
  Sequence sequence("s", tokens_up_to(40), 1);
  compute_in_window(blocks, sequence, 20);
  compute_in_window(blocks, sequence, 36);  // more than there are blocks: the head is taken
  PrefixMatch found;
  Sequence again("t", tokens_up_to(40), 1);
  blocks.match_prefix(again, found);
  EXPECT_TRUE(found.blocks.empty());
  blocks.release(sequence);
  compute_in_window(blocks, again, 8);
  blocks.match_prefix(sequence, found);
  EXPECT_EQ(found.blocks.size(), 2u);
}

TEST(BlockManagerWindow, InvariantsHoldUnderRandomOperations) {
  std::mt19937 random(1);
  for (const int32_t window : {1, 3, 4, 9, 30}) {
    BlockManager blocks({.num_blocks = 24, .block_size = kTokensOfBlock, .window = window});
    KvEventBatch events;
    blocks.record_events(&events);
    std::vector<std::unique_ptr<Sequence>> running;
    for (int32_t i = 0; i < 1500; ++i) {
      const auto pick = [&](size_t size) { return static_cast<size_t>(random() % size); };
      if (running.size() < 4) {
        std::vector<TokenId> tokens = tokens_up_to(60);
        for (size_t at = 8 * pick(8); at < tokens.size(); ++at)
          tokens[at] += static_cast<TokenId>(pick(2));
        running.push_back(std::make_unique<Sequence>("s", std::move(tokens), 1));
        PrefixMatch found;
        blocks.match_prefix(*running.back(), found);
        blocks.adopt_prefix(*running.back(), found);
      }
      Sequence& sequence = *running[pick(running.size())];
      const int32_t end = std::min(sequence.num_computed + 1 + static_cast<int32_t>(pick(12)), 60);
      if (pick(8) == 0 || end == sequence.num_computed || !blocks.allocate(sequence, end)) {
        blocks.release(sequence);
        std::erase_if(running, [&](const auto& each) { return each.get() == &sequence; });
      } else {
        sequence.num_scheduled = sequence.num_computed = end;
        blocks.publish(sequence);
        blocks.release_behind_window(sequence);
        EXPECT_LE(sequence.num_held_blocks(), (window + 12) / kTokensOfBlock + 3);
      }
      if (i % 100 == 0) blocks.announce_all();
      std::vector<const Sequence*> all;
      for (const auto& each : running)
        all.push_back(each.get());
      ASSERT_NO_THROW(blocks.check(all)) << "window " << window << ", operation " << i;
    }
    blocks.record_events(nullptr);
  }
}

class MostBlocksSink final : public StepSink {
 public:
  void consume(const StepRecord& record) noexcept override {
    most = std::max(most, record.batch.kv_blocks_used);
  }
  int32_t most = 0;
};

/// The most KV blocks in use while a tiny model with a window of 8 generates one sequence.
int32_t most_blocks(const std::string& model) {
  EngineOptions options;
  options.num_blocks = 64;
  options.max_num_seqs = 1;
  options.block_size = kTokensOfBlock;
  Engine engine(open_model(source_path("tests/golden/") + model + ".gguf"), options);
  MostBlocksSink sink;
  engine.recorder().add_sink(sink);
  answer_of(engine, greedy_request("a", tokens_up_to(40), 100));
  engine.recorder().remove_sink(sink);
  return sink.most;
}

TEST(BlockManagerWindow, AnEngineNeedsBlocksOfThePromptAlone) {
  EXPECT_EQ(most_blocks("mistral-window"), 10) << "40 tokens of a chunk";
}

}  // namespace
}  // namespace minfer::test
