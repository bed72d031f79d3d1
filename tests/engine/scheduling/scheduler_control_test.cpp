// Controls of the random scheduler test: each breaks one promise on purpose and shows that the test's checks
// notice it. If one of these fails, the random test proves nothing about that promise.

#include <numeric>
#include <span>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"
#include "tests/support/engine/scripted_model.h"

namespace minfer::test {
namespace {

constexpr int32_t kNumBlocks = 8, kBlockTokens = 4, kVocab = 1000;

EngineOptions eight_block_options() {
  EngineOptions options;
  options.block_size = kBlockTokens;
  options.num_blocks = kNumBlocks;
  options.max_model_len = kNumBlocks * kBlockTokens;
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 16;
  return options;
}

std::vector<TokenId> counting_from(int32_t num_tokens, TokenId from) {
  std::vector<TokenId> tokens(static_cast<size_t>(num_tokens));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

class SchedulerControl : public ::testing::Test {
 protected:
  void step() {
    const ScheduledBatch& batch = scheduler_.schedule();
    commit(batch, model_.forward(builder_.build(batch), batch));
  }

  void commit(const ScheduledBatch& batch, const std::vector<TokenId>& tokens) {
    size_t row = 0;
    for (const ScheduledSequence& each : batch.sequences) {
      scheduler_.commit(each, std::span(tokens).subspan(row, each.num_logit_rows));
      row += each.num_logit_rows;
    }
  }

  BlockManager blocks_{{.num_blocks = kNumBlocks, .block_size = kBlockTokens}};
  Scheduler scheduler_{eight_block_options(), blocks_};
  BatchBuilder builder_{eight_block_options()};
  ScriptedModel model_{kNumBlocks, kBlockTokens, kVocab, 1};
  Sequence a_{"a", counting_from(9, 100), 20};
  Sequence b_{"b", counting_from(9, 200), 20};
};

TEST_F(SchedulerControl, WithNothingBrokenTheOutputIsTheOneOfRunningAlone) {
  scheduler_.enqueue(a_);
  for (int i = 0; i < 6; ++i)
    step();
  const std::vector<TokenId> output(a_.tokens.begin() + 9, a_.tokens.end());
  EXPECT_EQ(output, model_.run_alone(counting_from(9, 100), 6));
}

TEST_F(SchedulerControl, NoticesABlockThatWasFreedUnderItsHolder) {
  scheduler_.enqueue(a_);
  step();
  Sequence holder("copy", a_.tokens, 1);
  holder.blocks = a_.blocks;
  blocks_.release(holder);
  scheduler_.enqueue(b_);
  EXPECT_THROW(
      {
        for (int i = 0; i < 12; ++i)
          step();
      },
      std::logic_error);
}

TEST_F(SchedulerControl, NoticesABlockThatWasSharedBeforeItWasWritten) {
  scheduler_.enqueue(a_);
  scheduler_.schedule();
  a_.num_computed = a_.num_scheduled;
  blocks_.publish(a_);
  scheduler_.finish(a_, FinishReason::cancelled);
  Sequence same("same", counting_from(9, 100), 20);
  scheduler_.enqueue(same);
  EXPECT_THROW(step(), std::logic_error);
}

TEST_F(SchedulerControl, NoticesAHitOnOtherTokens) {
  scheduler_.enqueue(a_);
  step();
  blocks_.adopt_prefix(b_, {.blocks = {a_.blocks[0]}, .num_live = 1});
  ASSERT_TRUE(blocks_.allocate(b_, 9));
  b_.num_scheduled = 9;
  ScheduledBatch batch;
  batch.sequences = {{&b_, 4, 5, 1}};
  EXPECT_THROW(model_.forward(builder_.build(batch), batch), std::logic_error);
}

TEST_F(SchedulerControl, NoticesAWrongBlockTable) {
  scheduler_.enqueue(a_);
  step();
  const ScheduledBatch& batch = scheduler_.schedule();
  HostBatch host = builder_.build(batch);
  EXPECT_NO_THROW(model_.forward(host, batch));
  host.block_table[0] = kNumBlocks - 1;
  EXPECT_THROW(model_.forward(host, batch), std::logic_error);
}

TEST_F(SchedulerControl, NoticesAWriteIntoAnotherSequence) {
  scheduler_.enqueue(a_);
  scheduler_.enqueue(b_);
  step();
  const ScheduledBatch& batch = scheduler_.schedule();
  const HostBatch& host = builder_.build(batch);
  model_.forward(host, batch);
  model_.kv()[static_cast<size_t>(a_.blocks[1]) * kBlockTokens + 2] = 12345;
  EXPECT_THROW(model_.forward(host, batch), std::logic_error);
}

TEST_F(SchedulerControl, NoticesATokenThatWasLost) {
  scheduler_.enqueue(a_);
  for (int i = 0; i < 6; ++i)
    step();
  std::vector<TokenId> output(a_.tokens.begin() + 9, a_.tokens.end());
  output.erase(output.begin() + 2);
  EXPECT_NE(output, model_.run_alone(counting_from(9, 100), 5));
}

TEST_F(SchedulerControl, NoticesATokenThatWasDoubled) {
  scheduler_.enqueue(a_);
  for (int i = 0; i < 3; ++i)
    step();
  a_.tokens.push_back(a_.tokens.back());
  for (int i = 0; i < 3; ++i)
    step();
  const std::vector<TokenId> output(a_.tokens.begin() + 9, a_.tokens.end());
  EXPECT_NE(output, model_.run_alone(counting_from(9, 100), 7));
}

}  // namespace
}  // namespace minfer::test
