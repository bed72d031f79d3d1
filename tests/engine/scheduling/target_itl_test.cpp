// The engine with a target for the time between tokens: answers do not change, and records say what was chosen and expected.
#include <limits>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/last_steps.h"
#include "tests/support/refusal.h"

namespace minfer::test {
namespace {

EngineOptions target_options(std::optional<double> target_itl_ms) {
  EngineOptions options = tiny_engine_options();
  options.num_blocks = 256;
  options.target_itl_ms = target_itl_ms;
  options.enable_prefix_caching = false;
  return options;
}

std::vector<TokenId> prompt_of(int32_t num_tokens, int32_t from) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < num_tokens; ++i)
    prompt.push_back(260 + (from * 31 + i * 7) % 200);
  return prompt;
}

/// Requests come while others decode.
Answers run_staggered(Engine& engine) {
  Answers answers;
  for (int32_t i = 0; i < 12; ++i) {
    engine.submit(greedy_request(std::to_string(i), prompt_of(20 + i * 8, i), 16));
    for (int step = 0; step < 3; ++step)
      answers.step(engine);
  }
  answers.run(engine);
  return answers;
}

TEST(TargetItl, ChangesNoAnswer) {
  const auto without = make_tiny_engine(target_options(0.0));
  const Answers expected = run_staggered(*without);
  ASSERT_EQ(expected.size(), 12u);
  for (const std::optional<double> target :
       {std::optional(1e-6), std::optional(1e6), std::optional<double>()}) {
    for (const SchedulingPolicy policy : {SchedulingPolicy::fcfs, SchedulingPolicy::shortest}) {
      EngineOptions options = target_options(target);
      options.policy = policy;
      const auto engine = make_tiny_engine(options);
      const Answers answers = run_staggered(*engine);
      for (const auto& [id, answer] : expected.all())
        EXPECT_EQ(answers.at(id).tokens, answer.tokens) << id;
    }
  }
}

TEST(TargetItl, RecordsHoldWhatWasChosenAndExpected) {
  const auto engine = make_tiny_engine(target_options(1e-6));
  run_staggered(*engine);
  int32_t num_mixed = 0, num_expected = 0;
  for (const StepRecord& record : test::last_steps(engine->recorder(), engine->recorder().capacity())) {
    const StepBatch& batch = record.batch;
    num_expected += batch.predicted_ns > 0;
    if (batch.shape.decode_sequences == 0) {
      EXPECT_EQ(batch.prefill_budget, 0) << record.step;
      continue;
    }
    EXPECT_GE(batch.prefill_budget, PrefillBudget::kLeastTokens) << record.step;
    EXPECT_LE(batch.shape.prefill_tokens, batch.prefill_budget) << record.step;
    num_mixed += batch.shape.prefill_tokens > 0;
  }
  EXPECT_GT(num_mixed, 10) << "prompts came in pieces beside decoding";
  EXPECT_GT(num_expected, 10);
}

TEST(TargetItl, WithoutATargetRecordsHoldWhatWasExpectedAlone) {
  const auto engine = make_tiny_engine(target_options(0.0));
  run_staggered(*engine);
  const std::vector<StepRecord> records = test::last_steps(engine->recorder(), engine->recorder().capacity());
  ASSERT_FALSE(records.empty());
  for (const StepRecord& record : records)
    EXPECT_EQ(record.batch.prefill_budget, 0);
  EXPECT_EQ(records.front().batch.predicted_ns, 0) << "nothing had been seen";
  EXPECT_GT(records.back().batch.predicted_ns, 0);
}

std::string refusal_of_target(std::optional<double> target_itl_ms, bool chunked = true) {
  EngineOptions options = target_options(target_itl_ms);
  options.enable_chunked_prefill = chunked;
  return test::refusal_of([&] { make_tiny_engine(options); });
}

TEST(TargetItl, RefusesWhatCannotBeMeant) {
  for (const double target :
       {-1.0, 3'600'001.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    EXPECT_NE(refusal_of_target(target).find("target-itl-ms"), std::string::npos) << target;
  EXPECT_NE(refusal_of_target(10.0, false).find("target-itl-ms: 10 with chunked prefill off"),
            std::string::npos);
  EXPECT_NE(refusal_of_target(std::nullopt, false).find("target-itl-ms: auto"), std::string::npos);
  EXPECT_EQ(refusal_of_target(0.0, false), "");
  EXPECT_EQ(refusal_of_target(3'600'000.0), "");
}

}  // namespace
}  // namespace minfer::test
