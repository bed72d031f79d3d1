#include "engine/scheduling/batch_builder.h"

#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace minfer::test {
namespace {

using ::testing::ElementsAre;

EngineOptions builder_options() {
  EngineOptions options;
  options.block_size = 4;
  options.max_model_len = 18;
  options.max_num_seqs = 3;
  options.max_num_batched_tokens = 16;
  return options;
}

/// A sequence as the scheduler leaves it: tokens 100 * number, 100 * number + 1, ... in the given blocks.
std::unique_ptr<Sequence> sequence(uint64_t number, int32_t num_tokens, std::vector<BlockId> blocks) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < num_tokens; ++i)
    tokens.push_back(static_cast<TokenId>(100 * number) + i);
  auto made = std::make_unique<Sequence>("s", std::move(tokens), 8);
  made->arrival = number;
  made->blocks = std::move(blocks);
  return made;
}

ScheduledBatch batch_of(std::vector<ScheduledSequence> sequences, int32_t num_decode_sequences) {
  ScheduledBatch batch;
  batch.sequences = std::move(sequences);
  batch.num_decode_sequences = num_decode_sequences;
  for (const ScheduledSequence& each : batch.sequences)
    batch.num_tokens += each.num_tokens;
  return batch;
}

std::vector<int32_t> first(const std::vector<int32_t>& values, int32_t count) {
  return {values.begin(), values.begin() + count};
}

std::vector<int32_t> block_row(const HostBatch& batch, int32_t row, int32_t count) {
  const auto begin = batch.block_table.begin() + row * batch.max_blocks;
  return {begin, begin + count};
}

TEST(BatchBuilder, LaysOutDecodesAndPrefillChunks) {
  const auto a = sequence(1, 6, {7, 2});
  const auto b = sequence(2, 10, {5, 0, 9});
  const auto c = sequence(3, 9, {4, 3});
  BatchBuilder builder(builder_options());
  const HostBatch& batch =
      builder.build(batch_of({{a.get(), 5, 1, 1}, {b.get(), 6, 4, 1}, {c.get(), 3, 3, 0}}, 1));

  EXPECT_EQ(batch.num_tokens, 8);
  EXPECT_EQ(batch.num_sequences, 3);
  EXPECT_EQ(batch.num_decode_sequences, 1);
  EXPECT_EQ(batch.num_decode_tokens, 1);
  EXPECT_EQ(batch.max_blocks, 5) << "18 tokens in blocks of 4";
  EXPECT_THAT(first(batch.token_ids, 8), ElementsAre(105, 206, 207, 208, 209, 303, 304, 305));
  EXPECT_THAT(first(batch.positions, 8), ElementsAre(5, 6, 7, 8, 9, 3, 4, 5));
  EXPECT_THAT(first(batch.slots, 8),
              ElementsAre(2 * 4 + 1, 0 * 4 + 2, 0 * 4 + 3, 9 * 4, 9 * 4 + 1, 4 * 4 + 3, 3 * 4, 3 * 4 + 1));
  EXPECT_THAT(first(batch.query_start, 4), ElementsAre(0, 1, 5, 8));
  EXPECT_THAT(first(batch.context_len, 3), ElementsAre(6, 10, 6));
  EXPECT_THAT(first(batch.logit_rows, batch.num_logit_rows), ElementsAre(0, 4));
  EXPECT_THAT(block_row(batch, 0, 2), ElementsAre(7, 2));
  EXPECT_THAT(block_row(batch, 1, 3), ElementsAre(5, 0, 9));
  EXPECT_THAT(block_row(batch, 2, 2), ElementsAre(4, 3));
}

TEST(BatchBuilder, CountsTheWorkOfBothPhases) {
  const auto a = sequence(1, 6, {7, 2});
  const auto b = sequence(2, 10, {5, 0, 9});
  const auto c = sequence(3, 9, {4, 3});
  BatchBuilder builder(builder_options());
  const BatchShape& shape =
      builder.build(batch_of({{a.get(), 5, 1, 1}, {b.get(), 6, 4, 1}, {c.get(), 3, 3, 0}}, 1)).shape;
  EXPECT_EQ(shape.decode_sequences, 1);
  EXPECT_EQ(shape.prefill_sequences, 2);
  EXPECT_EQ(shape.decode_tokens, 1);
  EXPECT_EQ(shape.prefill_tokens, 7);
  EXPECT_EQ(shape.decode_logit_rows, 1);
  EXPECT_EQ(shape.prefill_logit_rows, 1);
  EXPECT_EQ(shape.decode_context, 6);
  EXPECT_EQ(shape.longest_context, 6) << "of those that decode";
  EXPECT_EQ(shape.prefill_context, 10 + 6);
  EXPECT_EQ(shape.decode_attended, 6);
  EXPECT_EQ(shape.prefill_attended, (7 + 8 + 9 + 10) + (4 + 5 + 6));
}

TEST(BatchBuilder, CountsTheWorkOfWindowsInEveryStep) {
  const auto a = sequence(1, 6, {7, 2});
  const auto b = sequence(2, 10, {5, 0, 9});
  const std::vector<AttentionWindow> windows{4, 8};
  BatchBuilder builder(builder_options(), windows);
  for (int step = 0; step < 2; ++step) {
    const BatchShape& shape = builder.build(batch_of({{a.get(), 5, 1, 1}, {b.get(), 6, 4, 1}}, 1)).shape;
    EXPECT_EQ(shape.windows[0].window.keys, 4);
    EXPECT_EQ(shape.windows[0].decode_context, 4);
    EXPECT_EQ(shape.windows[0].prefill_context, 7);
    EXPECT_EQ(shape.windows[0].prefill_attended, 4 * 4);
    EXPECT_EQ(shape.windows[1].decode_attended, 6);
    EXPECT_EQ(shape.windows[1].prefill_attended, 7 + 8 + 8 + 8);
  }
  EXPECT_THROW(BatchBuilder(builder_options(), std::vector<AttentionWindow>{1, 2, 3}), Error);
}

TEST(BatchBuilder, SeveralTokensAndLogitRowsOfADecode) {
  const auto a = sequence(1, 8, {7, 2});
  BatchBuilder builder(builder_options());
  const HostBatch& batch = builder.build(batch_of({{a.get(), 5, 3, 3}}, 1));
  EXPECT_EQ(batch.num_decode_tokens, 3);
  EXPECT_THAT(first(batch.logit_rows, batch.num_logit_rows), ElementsAre(0, 1, 2));
  EXPECT_EQ(batch.shape.decode_attended, 6 + 7 + 8);
}

TEST(BatchBuilder, AnEmptyBatch) {
  BatchBuilder builder(builder_options());
  const HostBatch& batch = builder.build(batch_of({}, 0));
  EXPECT_EQ(batch.num_tokens, 0);
  EXPECT_EQ(batch.num_sequences, 0);
  EXPECT_EQ(batch.num_logit_rows, 0);
}

TEST(BatchBuilder, ARowFollowsItsSequenceAsItGrows) {
  const auto a = sequence(1, 12, {7});
  BatchBuilder builder(builder_options());
  builder.build(batch_of({{a.get(), 0, 4, 0}}, 0));
  a->blocks = {7, 2, 6};
  EXPECT_THAT(block_row(builder.build(batch_of({{a.get(), 4, 8, 1}}, 0)), 0, 3), ElementsAre(7, 2, 6));
}

TEST(BatchBuilder, ARowIsWrittenAnewForAnotherSequence) {
  const auto a = sequence(1, 8, {7, 2});
  const auto b = sequence(2, 8, {5, 6});
  BatchBuilder builder(builder_options());
  builder.build(batch_of({{a.get(), 7, 1, 1}, {b.get(), 7, 1, 1}}, 2));
  EXPECT_THAT(block_row(builder.build(batch_of({{b.get(), 7, 1, 1}}, 1)), 0, 2), ElementsAre(5, 6));
}

TEST(BatchBuilder, ARowIsWrittenAnewAfterAPreemption) {
  const auto a = sequence(1, 8, {7, 2});
  BatchBuilder builder(builder_options());
  builder.build(batch_of({{a.get(), 7, 1, 1}}, 1));
  a->blocks = {1, 3};
  ++a->num_preemptions;
  EXPECT_THAT(block_row(builder.build(batch_of({{a.get(), 7, 1, 1}}, 1)), 0, 2), ElementsAre(1, 3));
}

/// Blocks of 8 tokens for layers with full attention, of 4 for those with windows.
EngineOptions two_table_options() {
  EngineOptions options = builder_options();
  options.kv_layout = KvLayout{.parts = 2, .window_parts = 2, .window = 6, .has_window_table = true};
  return options;
}

TEST(BatchBuilder, LayersWithWindowsHaveRowsAndSlotsOfTheirOwn) {
  const auto a = sequence(1, 14, {7, 2});
  const auto b = sequence(2, 10, {5, 0});
  a->window_blocks = {kFreedBlock, kFreedBlock, 3, 9};
  a->num_freed_window_blocks = 2;
  b->window_blocks = {4, 1, 6};
  BatchBuilder builder(two_table_options());
  const HostBatch& batch = builder.build(batch_of({{a.get(), 13, 1, 1}, {b.get(), 8, 2, 1}}, 1));
  EXPECT_EQ(batch.window_row, 3) << "behind those of three sequences";
  EXPECT_EQ(batch.num_rows(), 6);
  EXPECT_THAT(block_row(batch, 0, 4), ElementsAre(14, 15, 4, 5)) << "two parts a block";
  EXPECT_THAT(block_row(batch, 1, 4), ElementsAre(10, 11, 0, 1));
  EXPECT_THAT(block_row(batch, 3, 4), ElementsAre(0, 0, 6, 18)) << "the first part of each";
  EXPECT_THAT(block_row(batch, 4, 3), ElementsAre(8, 2, 12));
  EXPECT_THAT(first(batch.slots, 3), ElementsAre(2 * 8 + 5, 0 * 8 + 0, 0 * 8 + 1));
  EXPECT_THAT(first(batch.window_slots, 3), ElementsAre(9 * 8 + 1, 6 * 8 + 0, 6 * 8 + 1));
  ASSERT_EQ(batch.changes.size(), 4u);
  EXPECT_EQ(batch.changes[1].row, 3);
  EXPECT_EQ(batch.changes[1].first, 2) << "what is behind the window is not brought";
  EXPECT_EQ(batch.changes[1].count, 2);
  const ForwardBatch of_windows = batch.view().of_windows();
  EXPECT_EQ(of_windows.slots[0], 9 * 8 + 1);
  EXPECT_EQ(of_windows.block_table[3], 18);
  for (int32_t i = 0; i < 3; ++i) {
    const int32_t row = i == 0 ? 0 : 1, position = batch.positions[static_cast<size_t>(i)];
    EXPECT_EQ(of_windows.slots[i],
              of_windows.block_table[row * batch.max_blocks + position / 4] * 4 + position % 4);
  }
}

/// Layers with windows have larger parts: a block has 2 parts of the other layers and one of theirs.
TEST(BatchBuilder, EntriesOfLayersWithWindowsAreCountedInTheirOwnParts) {
  const auto a = sequence(1, 14, {7, 2});
  a->window_blocks = {kFreedBlock, kFreedBlock, 3, 9};
  a->num_freed_window_blocks = 2;
  EngineOptions options = two_table_options();
  options.kv_layout->window_parts = 1;
  BatchBuilder builder(options);
  const HostBatch& batch = builder.build(batch_of({{a.get(), 13, 1, 1}}, 1));
  EXPECT_THAT(block_row(batch, 0, 4), ElementsAre(14, 15, 4, 5));
  EXPECT_THAT(block_row(batch, 3, 4), ElementsAre(0, 0, 3, 9));
  EXPECT_THAT(first(batch.slots, 1), ElementsAre(2 * 8 + 5));
  EXPECT_THAT(first(batch.window_slots, 1), ElementsAre(9 * 4 + 1));
}

TEST(BatchBuilder, ABlockMayReachBeyondTheLongestSequence) {
  const auto a = sequence(1, 17, {7, 2, 3});
  a->window_blocks = {1, 4, 5, 6, 8};
  BatchBuilder builder(two_table_options());
  const HostBatch& batch = builder.build(batch_of({{a.get(), 0, 16, 0}}, 0));
  EXPECT_THAT(block_row(batch, 0, 5), ElementsAre(14, 15, 4, 5, 6));
  EXPECT_THAT(block_row(batch, 1, 1), ElementsAre(0)) << "the next row is not touched";
}

TEST(BatchBuilder, WhereThereIsOneTableNothingIsAdded) {
  const auto a = sequence(1, 6, {7, 2});
  BatchBuilder builder(builder_options());
  const HostBatch& batch = builder.build(batch_of({{a.get(), 5, 1, 1}}, 1));
  EXPECT_EQ(batch.num_rows(), 3);
  EXPECT_TRUE(batch.window_slots.empty());
  EXPECT_EQ(batch.view().window_slots, nullptr);
  EXPECT_EQ(batch.view().of_windows().block_table, batch.view().block_table);
}

TEST(BatchBuilder, TheViewPointsAtTheSameNumbers) {
  const auto a = sequence(1, 6, {7, 2});
  BatchBuilder builder(builder_options());
  const HostBatch& batch = builder.build(batch_of({{a.get(), 5, 1, 1}}, 1));
  const ForwardBatch view = batch.view();
  EXPECT_EQ(view.num_tokens, 1);
  EXPECT_EQ(view.num_sequences, 1);
  EXPECT_EQ(view.num_decode_sequences, 1);
  EXPECT_EQ(view.num_decode_tokens, 1);
  EXPECT_EQ(view.num_logit_rows, 1);
  EXPECT_EQ(view.max_blocks, 5);
  EXPECT_EQ(view.token_ids[0], 105);
  EXPECT_EQ(view.positions[0], 5);
  EXPECT_EQ(view.slots[0], 9);
  EXPECT_EQ(view.query_start[1], 1);
  EXPECT_EQ(view.context_len[0], 6);
  EXPECT_EQ(view.block_table[1], 2);
  EXPECT_EQ(view.logit_rows[0], 0);
}

}  // namespace
}  // namespace minfer::test
