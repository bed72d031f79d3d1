#include "engine/ranks/step_message.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

EngineOptions message_options() {
  EngineOptions options = test::tiny_engine_options();
  options.max_num_batched_tokens = 32;
  return options;
}

/// A batch of two sequences; the second one's blocks are new.
struct SampleBatch {
  std::vector<int32_t> token_ids{-1, 5, 6}, positions{17, 0, 1}, slots{33, 64, 65}, query_start{0, 1, 3};
  std::vector<int32_t> context_len{18, 2}, block_table{1, 2, 0, 0, 0, 0, 0, 0, 4, 9, 0, 0, 0, 0, 0, 0};
  std::vector<int32_t> logit_rows{0, 2};
  std::vector<BlockTableChange> changes{{1, 0, 2}};

  ForwardBatch view() const {
    return {.num_tokens = 3,
            .num_sequences = 2,
            .num_decode_sequences = 1,
            .num_decode_tokens = 1,
            .num_logit_rows = 2,
            .max_blocks = 8,
            .token_ids = token_ids.data(),
            .positions = positions.data(),
            .slots = slots.data(),
            .query_start = query_start.data(),
            .context_len = context_len.data(),
            .block_table = block_table.data(),
            .changes = changes,
            .logit_rows = logit_rows.data()};
  }
};

TEST(StepMessage, BringsABatchAndWhatIsNewInItsBlockTable) {
  const SampleBatch batch;
  const std::vector<SamplingRow> rows(2);
  RankOrders orders;
  RankSteps steps(message_options());
  const std::span<const std::byte> message =
      orders.launch({.step = 7, .batch = batch.view(), .rows = rows, .share_op = 30});
  EXPECT_EQ(order_of(message), RankOrder::launch);
  const StepArgs read = steps.read(message).step;
  EXPECT_EQ(read.step, 7);
  EXPECT_EQ(read.followed_rows, 2);
  EXPECT_GE(read.share_op, 0);
  EXPECT_TRUE(read.rows.empty());
  const ForwardBatch& found = read.batch;
  EXPECT_EQ(found.num_tokens, 3);
  EXPECT_EQ(found.num_decode_sequences, 1);
  EXPECT_EQ(found.num_decode_tokens, 1);
  const auto same = [](const std::vector<int32_t>& values, const int32_t* other) {
    return std::equal(values.begin(), values.end(), other);
  };
  EXPECT_TRUE(same(batch.token_ids, found.token_ids));
  EXPECT_TRUE(same(batch.positions, found.positions));
  EXPECT_TRUE(same(batch.slots, found.slots));
  EXPECT_TRUE(same(batch.query_start, found.query_start));
  EXPECT_TRUE(same(batch.context_len, found.context_len));
  EXPECT_TRUE(same(batch.logit_rows, found.logit_rows));
  ASSERT_EQ(found.changes.size(), 1u);
  EXPECT_EQ(found.block_table[8], 4);
  EXPECT_EQ(found.block_table[9], 9);
  EXPECT_EQ(found.block_table[0], 0) << "not new: it came with a step before";
  SampleBatch later;
  later.changes.clear();
  EXPECT_EQ(steps.read(orders.launch({.batch = later.view()})).step.batch.block_table[9], 9) << "it stays";
}

TEST(StepMessage, BringsTheTableOfWindows) {
  EngineOptions options = message_options();
  options.max_num_seqs = 2;
  options.max_model_len = 8 * options.block_size;
  options.kv_layout = KvLayout{.parts = 2, .window_parts = 2, .window = 6, .has_window_table = true};
  SampleBatch batch;
  batch.block_table.resize(32);
  batch.block_table[24] = 6;  // the second sequence's first block of layers with windows
  batch.changes = {{1, 0, 2}, {3, 0, 1}};
  const std::vector<int32_t> window_slots{20, 96, 97};
  ForwardBatch view = batch.view();
  view.window_row = 2;
  view.window_slots = window_slots.data();
  RankOrders orders;
  RankSteps steps(options);
  const std::span<const std::byte> message = orders.launch({.batch = view});
  const ForwardBatch found = steps.read(message).step.batch;
  EXPECT_EQ(found.window_row, 2);
  EXPECT_TRUE(std::equal(window_slots.begin(), window_slots.end(), found.window_slots));
  EXPECT_EQ(found.block_table[9], 9);
  EXPECT_EQ(found.of_windows().block_table[8], 6);
  for (size_t size = 0; size < message.size(); size += 3)
    EXPECT_THROW(steps.read(message.first(size)), Error) << size;
}

TEST(StepMessage, BringsTheSlotsOfStates) {
  EngineOptions options = message_options();
  options.num_state_slots = 4;
  const SampleBatch batch;
  const std::vector<int32_t> slots{3, 1};
  ForwardBatch view = batch.view();
  view.state_slots = slots.data();
  const std::vector<StateCopy> restores{{5, 3}}, saves{{1, 4}, {3, 5}};
  view.state_restores = restores;
  view.state_saves = saves;
  RankOrders orders;
  RankSteps steps(options);
  const std::span<const std::byte> message = orders.launch({.batch = view});
  const ForwardBatch found = steps.read(message).step.batch;
  ASSERT_NE(found.state_slots, nullptr);
  EXPECT_TRUE(std::equal(slots.begin(), slots.end(), found.state_slots));
  EXPECT_TRUE(std::ranges::equal(restores, found.state_restores));
  EXPECT_TRUE(std::ranges::equal(saves, found.state_saves));
  EXPECT_TRUE(std::equal(batch.logit_rows.begin(), batch.logit_rows.end(), found.logit_rows));
  for (size_t size = 0; size < message.size(); size += 3)
    EXPECT_THROW(steps.read(message.first(size)), Error) << size;
  view.state_restores = view.state_saves = {};
  EXPECT_TRUE(steps.read(orders.launch({.batch = view})).step.batch.state_saves.empty());
}

TEST(StepMessage, PlainOrdersAreThemselves) {
  RankOrders orders;
  EXPECT_EQ(order_of(orders.plain(RankOrder::finish)), RankOrder::finish);
  EXPECT_EQ(order_of(orders.plain(RankOrder::end)), RankOrder::end);
}

TEST(StepMessage, RefusesWhatIsCutOrTooLarge) {
  const SampleBatch batch;
  RankOrders orders;
  RankSteps steps(message_options());
  const std::span<const std::byte> whole = orders.launch({.batch = batch.view()});
  for (size_t size = 0; size < whole.size(); size += 3)
    EXPECT_THROW(steps.read(whole.first(size)), Error) << size;
  SampleBatch outside;
  outside.changes = {{7, 7, 2}};
  outside.block_table.resize(100);
  EXPECT_THROW(steps.read(orders.launch({.batch = outside.view()})), Error);
  ForwardBatch many = batch.view();
  const std::vector<int32_t> tokens(3000);
  many.num_tokens = 3000;
  many.token_ids = many.positions = many.slots = tokens.data();
  EXPECT_THROW(steps.read(orders.launch({.batch = many})), Error);
}

}  // namespace
}  // namespace minfer
