// Models whose layers keep states of sequences: which slot each sequence has, and that none sees another's.
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/memory/state_copies.h"
#include "engine/model_runner.h"
#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"
#include "models/decoder/memory/recurrent_state_pool.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/models/logit_run.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::greedy_request;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::string hybrid_path() {
  return source_path("tests/golden/qwen3next.gguf");
}

EngineOptions hybrid_options() {
  EngineOptions options;
  options.max_model_len = 128;
  options.max_num_seqs = 4;
  options.num_blocks = 64;
  options.threads = 1;
  return options;
}

std::vector<TokenId> some_prompt(int32_t length, int32_t seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<TokenId> prompt(static_cast<size_t>(length));
  for (TokenId& token : prompt)
    token = static_cast<TokenId>(3 + random() % 285);
  return prompt;
}

std::string refusal_of_hybrid(const EngineOptions& options) {
  return test::refusal_of([&] { const Engine engine(open_model(hybrid_path()), options); });
}

TEST(StateSlots, AreTakenOnceAndGivenBack) {
  StateSlots slots(2);
  Sequence first("a", {1}, 1), second("b", {1}, 1), third("c", {1}, 1);
  slots.take(first);
  slots.take(second);
  EXPECT_EQ(std::set({first.state_slot, second.state_slot}), std::set({0, 1}));
  EXPECT_THROW(slots.take(first), std::logic_error);
  EXPECT_THROW(slots.take(third), std::logic_error) << "none is left";
  const int32_t freed = first.state_slot;
  slots.give_back(first);
  slots.give_back(first);
  EXPECT_EQ(first.state_slot, -1);
  EXPECT_EQ(slots.num_free(), 1) << "given back once";
  slots.take(third);
  EXPECT_EQ(third.state_slot, freed);
}

TEST(StateSlots, NoneOfModelsWithoutStates) {
  StateSlots slots(0);
  Sequence sequence("a", {1}, 1);
  slots.take(sequence);
  EXPECT_EQ(sequence.state_slot, -1);
  slots.give_back(sequence);
  EXPECT_EQ(slots.num_free(), 0);
}

/// Sequences end, are cancelled and are preempted, in random order.
TEST(StateSlots, RunningSequencesHaveOneEachAndOthersNone) {
  EngineOptions options = hybrid_options();
  options.max_num_seqs = 3;
  options.max_num_batched_tokens = 16;
  options.block_size = 4;
  options.num_blocks = 24;
  options.max_model_len = 64;
  options.num_state_slots = 3;
  options.is_recurrent = true;
  options.enable_prefix_caching = false;
  BlockManager blocks(block_manager_options(options));
  Scheduler scheduler(options, blocks);
  std::vector<std::unique_ptr<Sequence>> sequences;
  std::mt19937 random(1);
  int32_t num_preempted = 0;
  for (int32_t step = 0; step < 3000; ++step) {
    if (random() % 4 == 0) {
      sequences.push_back(
          std::make_unique<Sequence>("", some_prompt(1 + static_cast<int32_t>(random() % 30), step), 40));
      scheduler.enqueue(*sequences.back());
    }
    if (random() % 16 == 0 && !sequences.empty())
      scheduler.finish(*sequences[random() % sequences.size()], FinishReason::cancelled);
    const ScheduledBatch batch = scheduler.schedule();
    num_preempted += batch.num_preempted;
    for (const ScheduledSequence& entry : batch.sequences) {
      const std::vector<TokenId> drawn(static_cast<size_t>(entry.num_drawn()), 5);
      scheduler.commit(entry, drawn);
      if (entry.sequence->reached_max_tokens()) scheduler.finish(*entry.sequence, FinishReason::length);
    }
    std::set<int32_t> taken;
    for (const auto& sequence : sequences) {
      EXPECT_EQ(sequence->state_slot >= 0, sequence->status == SequenceStatus::running);
      if (sequence->state_slot >= 0) {
        EXPECT_TRUE(taken.insert(sequence->state_slot).second) << "given twice";
      }
    }
    EXPECT_EQ(scheduler.state_slots().num_free() + std::ssize(taken), 3);
  }
  EXPECT_GT(num_preempted, 10);
}

TEST(StateSlots, ABatchNamesThoseOfItsSequences) {
  EngineOptions options = hybrid_options();
  options.num_state_slots = 4;
  options.is_recurrent = true;
  options.steps_ahead = 0;
  BlockManager blocks(block_manager_options(options));
  Scheduler scheduler(options, blocks);
  BatchBuilder builder(options);
  Sequence first("a", some_prompt(5, 1), 4), second("b", some_prompt(3, 2), 4);
  scheduler.enqueue(first);
  scheduler.enqueue(second);
  const ScheduledBatch& scheduled = scheduler.schedule();
  const ForwardBatch batch = builder.build(scheduled).view();
  ASSERT_EQ(batch.num_sequences, 2);
  EXPECT_EQ(batch.state_slots[0], first.state_slot);
  EXPECT_EQ(batch.state_slots[1], second.state_slot);
  EXPECT_NE(first.state_slot, second.state_slot);
  options.num_state_slots = 0;
  options.is_recurrent = false;
  EXPECT_EQ(HostBatch::of(options).view().state_slots, nullptr);
}

/// Clients leave while others use their slots, with a step ahead and without.
TEST(States, OutputsAreThoseOfRequestsAlone) {
  std::map<std::string, std::vector<TokenId>> expected;
  std::vector<Request> requests;
  for (int32_t i = 0; i < 14; ++i) {
    const std::string id = std::to_string(i);
    requests.push_back(greedy_request(id, some_prompt(1 + 7 * (i % 6), i), 5 + i));
    Engine engine(open_model(hybrid_path()), hybrid_options());
    engine.submit(requests.back());
    while (engine.has_work()) {
      for (const RequestOutput& output : engine.step())
        expected[id].insert(expected[id].end(), output.tokens.begin(), output.tokens.end());
    }
  }
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = hybrid_options();
    options.steps_ahead = steps_ahead;
    options.max_num_batched_tokens = 19;
    options.block_size = 4;
    options.num_blocks = 40;
    Engine engine(open_model(hybrid_path()), options);
    std::map<std::string, std::vector<TokenId>> outputs;
    for (const Request& request : requests)
      engine.submit(request);
    for (int32_t step = 0; engine.has_work(); ++step) {
      if (step % 5 == 2) engine.cancel(std::to_string(step / 5));
      for (const RequestOutput& output : engine.step())
        outputs[output.id].insert(outputs[output.id].end(), output.tokens.begin(), output.tokens.end());
    }
    int32_t num_whole = 0;
    for (const auto& [id, tokens] : outputs) {
      const std::vector<TokenId>& whole = expected[id];
      ASSERT_LE(tokens.size(), whole.size());
      EXPECT_TRUE(std::equal(tokens.begin(), tokens.end(), whole.begin()))
          << id << ", " << steps_ahead << " ahead";
      num_whole += tokens.size() == whole.size();
    }
    EXPECT_GT(num_whole, 5);
    EXPECT_LT(num_whole, 14) << "nothing was cancelled";
  }
}

/// Control of the invariance tests: sequences that continue in each other's slots.
TEST(States, AWrongOneIsNoticed) {
  const auto source = open_model(hybrid_path());
  const std::vector<test::LogitJob> jobs{{some_prompt(20, 1), 10}, {some_prompt(33, 2), 10}};
  const std::vector<test::LogitTrace> expected = test::LogitRun(*source, hybrid_options()).run(jobs);
  int64_t step = 0;
  const std::vector<test::LogitTrace> spoilt =
      test::LogitRun(*source, hybrid_options()).run(jobs, [&](HostBatch& batch, const KvCache&) {
        if (step++ == 6) std::swap(batch.state_slots[0], batch.state_slots[1]);
      });
  for (size_t i = 0; i < jobs.size(); ++i)
    EXPECT_FALSE(spoilt[i].same_bits(expected[i])) << i;
}

TEST(States, ThereIsASlotForEachSequence) {
  const auto source = open_model(hybrid_path());
  EngineOptions options = hybrid_options();
  ModelRunner runner(*source, options, options.max_num_seqs);
  EXPECT_EQ(runner.options().num_state_slots, 4);
  options.max_num_batched_tokens = 3;
  EXPECT_EQ(ModelRunner(*source, options, 3).options().num_state_slots, 3) << "no more run at once";
  const auto plain = open_model("");
  EXPECT_EQ(ModelRunner(*plain, hybrid_options(), 4).options().num_state_slots, 0);
  EXPECT_TRUE(ModelRunner(*plain, hybrid_options(), 4).options().enable_prefix_caching);
}

TEST(States, WhatWouldChangeThemWronglyIsRefused) {
  EngineOptions options = hybrid_options();
  options.speculation.method = SpeculationMethod::ngram;
  options.enable_prefix_caching = false;
  EXPECT_THAT(refusal_of_hybrid(options), AllOf(HasSubstr("speculative: "), HasSubstr("states of sequences"),
                                                HasSubstr("--num-state-copies of at least 1")));
}

TEST(States, MoreThanTheMemoryIsRefusedWithWhatWouldFit) {
  test::ModelParts model = test::tiny_model("qwen3next", 4);
  model.keys["qwen3next.ssm.group_count"] = 1u;
  model.keys["qwen3next.ssm.time_step_rank"] = 64u;
  model.keys["qwen3next.ssm.state_size"] = 1024u;
  model.keys["qwen3next.ssm.inner_size"] = 65536u;
  const std::string blk = "blk.0.";
  model.tensors[blk + "attn_qkv.weight"].dims = {32, 67584};
  model.tensors[blk + "attn_gate.weight"].dims = {32, 65536};
  model.tensors[blk + "ssm_ba.weight"].dims = {32, 128};
  model.tensors[blk + "ssm_conv1d.weight"].dims = {3, 67584};
  model.tensors[blk + "ssm_dt.bias"].dims = {64};
  model.tensors[blk + "ssm_a"] = {DType::f32, {64}, {}};
  model.tensors[blk + "ssm_norm.weight"].dims = {1024};
  model.tensors[blk + "ssm_out.weight"].dims = {65536, 32};
  const std::vector<std::byte> bytes = model.build();
  const auto source = open_model_in_memory(bytes, "model.gguf");
  // A matrix [1024, 1024] for each of 64 heads, and two inputs of 67,584 channels.
  const size_t slot = (size_t{256} << 20) + 2 * 67584 * 4;
  EXPECT_EQ(RecurrentStatePool::slot_bytes(source->config()), slot);
  EngineOptions options;
  options.max_num_seqs = options.max_num_batched_tokens = 65536;
  options.threads = 1;
  try {
    const ModelRunner runner(*source, options, 1);
    FAIL() << "16 TiB fit into the memory of this machine";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("max-num-seqs: the states of 65536 sequences take"),
                                    HasSubstr(std::to_string(slot) + " each"), HasSubstr("lower it to")));
  }
}

}  // namespace
}  // namespace minfer
