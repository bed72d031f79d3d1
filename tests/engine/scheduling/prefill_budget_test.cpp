#include "engine/scheduling/prefill_budget.h"

#include <algorithm>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/engine/scheduler_steps.h"
#include "tests/support/engine/step_shapes.h"

namespace minfer::test {
namespace {

constexpr int32_t kRoom = 2000;

/// A cost that has learnt the times of steps on a device bound by arithmetic.
StepCost taught_cost(int steps = 2000) {
  StepCost cost;
  std::mt19937_64 random(1);
  for (int i = 0; i < steps; ++i) {
    const int32_t prompt = random() % 2 == 0 ? static_cast<int32_t>(1 + random() % 1500) : 0;
    const BatchShape shape =
        step_shape(static_cast<int32_t>(1 + random() % 16), static_cast<int32_t>(random() % 1000), prompt,
                   static_cast<int32_t>(random() % 1000));
    cost.observe(shape, static_cast<int64_t>(1e3 * arithmetic_us(shape)));
  }
  return cost;
}

int64_t ns_of(double ms) {
  return static_cast<int64_t>(ms * 1e6);
}

TEST(PrefillBudget, TakesAsManyTokensAsFitIntoTheTarget) {
  const StepCost cost = taught_cost();
  for (const double target_ms : {5.0, 20.0, 60.0}) {
    const PrefillBudget budget(ns_of(target_ms), cost);
    const int32_t tokens = budget.tokens(step_shape(8, 500, 0), 0, kRoom);
    EXPECT_LT(arithmetic_us(step_shape(8, 500, tokens)), 1.05e3 * target_ms) << tokens;
    EXPECT_GT(arithmetic_us(step_shape(8, 500, tokens)), 0.9e3 * target_ms) << tokens;
  }
}

TEST(PrefillBudget, TakesFewerBehindALongBeginning) {
  const StepCost cost = taught_cost();
  const PrefillBudget budget(ns_of(60.0), cost);
  const BatchShape decoding = step_shape(8, 500, 0);
  EXPECT_LT(budget.tokens(decoding, 20'000, kRoom), budget.tokens(decoding, 0, kRoom));
}

TEST(PrefillBudget, WithoutDecodingThereIsNoLimit) {
  const StepCost cost = taught_cost();
  const PrefillBudget budget(1, cost);
  EXPECT_EQ(budget.tokens({}, 0, kRoom), kRoom);
  EXPECT_EQ(budget.tokens({}, 0, 0), 0);
}

// A target below the time of decoding alone: prompts may add a quarter to that time, and always get a few tokens.
TEST(PrefillBudget, PromptsAdvanceWhateverTheTarget) {
  const StepCost cost = taught_cost();
  const PrefillBudget budget(1, cost);
  EXPECT_EQ(budget.tokens(step_shape(1, 10, 0), 0, kRoom), PrefillBudget::kLeastTokens);
  const BatchShape many = step_shape(200, 500, 0);
  const int32_t tokens = budget.tokens(many, 0, kRoom);
  EXPECT_GT(tokens, PrefillBudget::kLeastTokens);
  EXPECT_LT(arithmetic_us(step_shape(200, 500, tokens)), 1.35 * arithmetic_us(many));
}

TEST(PrefillBudget, IsNeverMoreThanTheRoom) {
  const StepCost cost = taught_cost();
  for (const double target_ms : {1e-3, 10.0, 1e5}) {
    const PrefillBudget budget(ns_of(target_ms), cost);
    for (int32_t room = 0; room < 100; ++room) {
      const int32_t tokens = budget.tokens(step_shape(4, 100, 0), 0, room);
      ASSERT_LE(tokens, room);
      ASSERT_GE(tokens, std::min(room, PrefillBudget::kLeastTokens));
    }
  }
}

TEST(PrefillBudget, ApproachesWhatItHasNotSeen) {
  StepCost cost;
  const PrefillBudget budget(ns_of(1e4), cost);
  const BatchShape decoding = step_shape(4, 100, 0);
  int32_t before = budget.tokens(decoding, 0, kRoom);
  EXPECT_EQ(before, PrefillBudget::kFirstTokens);
  for (int i = 0; i < 10; ++i) {
    const BatchShape shape = step_shape(4, 100, before);
    cost.observe(shape, static_cast<int64_t>(1e3 * roofline_us(shape)));
    const int32_t tokens = budget.tokens(decoding, 0, kRoom);
    EXPECT_LE(tokens, 2 * (before + 4));
    before = tokens;
  }
  EXPECT_EQ(before, kRoom);
}

/// The share of its speed that a prompt loses because a step has `tokens` of it.
double loss_of(double (*true_us)(const BatchShape&), int32_t sequences, int32_t tokens) {
  const auto token_us = [&](int32_t count) { return true_us(step_shape(sequences, 100, count)) / count; };
  double least_us = token_us(kRoom);
  for (int32_t count = 1; count < kRoom; ++count)
    least_us = std::min(least_us, token_us(count));
  return token_us(tokens) / least_us - 1.0;
}

TEST(PrefillBudget, WithoutATargetPromptsLoseAQuarterOfTheirSpeed) {
  const StepCost cost = taught_cost();
  const PrefillBudget budget(std::nullopt, cost);
  int32_t before = 0;
  for (const int32_t sequences : {1, 8, 32}) {
    const int32_t tokens = budget.tokens(step_shape(sequences, 100, 0), 0, kRoom);
    EXPECT_NEAR(loss_of(arithmetic_us, sequences, tokens), PrefillBudget::kLoss, 0.05) << tokens;
    EXPECT_GT(tokens, before) << "more wait for less in a step that takes longer anyway";
    before = tokens;
  }
}

/// Requests come at random times of a clock that only the costs of steps move. The times of steps are learnt.
struct SimulatedServer {
  /// Target 0: prompts get everything that decoding leaves; absent: the budget that is chosen without a target.
  explicit SimulatedServer(std::optional<double> target_ms, double (*true_cost)(const BatchShape&))
      : budget(target_ms ? std::optional(ns_of(*target_ms)) : std::nullopt, cost),
        true_us(true_cost),
        steps(options(), target_ms == 0.0 ? nullptr : &budget) {}

  static EngineOptions options() {
    EngineOptions options;
    options.block_size = 16;
    options.num_blocks = 4096;
    options.max_model_len = 4096;
    options.max_num_seqs = 64;
    options.max_num_batched_tokens = 2048;
    options.enable_prefix_caching = false;
    return options;
  }

  void step() {
    BatchShape shape;
    steps.schedule();
    for (int32_t i = 0; i < static_cast<int32_t>(steps.batch().sequences.size()); ++i) {
      const ScheduledSequence& each = steps.batch().sequences[static_cast<size_t>(i)];
      const BatchShape one = i < steps.batch().num_decode_sequences
                                 ? step_shape(1, each.first_token + 1, 0)
                                 : step_shape(0, 0, each.num_tokens, each.first_token);
      shape.decode_sequences += one.decode_sequences;
      shape.decode_tokens += one.decode_tokens;
      shape.decode_logit_rows += one.decode_logit_rows;
      shape.decode_context += one.decode_context;
      shape.prefill_tokens += one.prefill_tokens;
      shape.prefill_logit_rows += each.num_logit_rows > 0 && one.prefill_tokens > 0;
      shape.prefill_attended += one.prefill_attended;
    }
    steps.commit();
    const double us = true_us(shape);
    clock_us += us;
    cost.observe(shape, static_cast<int64_t>(us * 1e3));
    num_steps += 1;
    if (shape.decode_sequences > 0 && shape.prefill_tokens > 0) mixed_us.push_back(us);
  }

  void run(int num_requests, uint64_t seed) {
    std::mt19937_64 random(seed);
    double next_us = 0.0;
    for (int i = 0; i < num_requests || steps.scheduler().has_work();) {
      while (i < num_requests && next_us <= clock_us) {
        steps.add(std::to_string(i++), static_cast<int32_t>(50 + random() % 1500), 40);
        next_us += static_cast<double>(random() % 300'000);
      }
      if (steps.scheduler().has_work()) {
        step();
      } else {
        clock_us = next_us;
      }
    }
  }

  /// In the later half of the steps with prompts beside decoding: the time that this share of them does not exceed.
  double late_mixed_us(double share) const {
    std::vector<double> late(mixed_us.begin() + std::ssize(mixed_us) / 2, mixed_us.end());
    std::ranges::sort(late);
    return late[static_cast<size_t>(share * static_cast<double>(late.size() - 1))];
  }

  StepCost cost;
  PrefillBudget budget;
  double (*true_us)(const BatchShape&);
  SchedulerSteps steps;
  double clock_us = 0.0;
  int64_t num_steps = 0;
  std::vector<double> mixed_us;
};

TEST(PrefillBudget, WithoutATargetPiecesGrowWithTheQueue) {
  const StepCost cost = taught_cost();
  const PrefillBudget automatic(std::nullopt, cost), target(ns_of(20.0), cost);
  const BatchShape decoding = step_shape(8, 100, 0);
  int32_t before = 0;
  for (const int32_t num_waiting : {0, 1, 3, 10}) {
    const int32_t tokens = automatic.tokens(decoding, 0, kRoom, num_waiting);
    EXPECT_NEAR(loss_of(arithmetic_us, 8, tokens), PrefillBudget::kLoss / (1 + num_waiting), 0.05);
    EXPECT_GT(tokens, before);
    before = tokens;
    EXPECT_EQ(target.tokens(decoding, 0, kRoom, num_waiting), target.tokens(decoding, 0, kRoom))
        << "a target is one";
  }
}

// Up to 300 tokens cost nothing, so about that many are taken.
TEST(PrefillBudget, WithoutATargetItStaysAtTheBendOfTheRoofline) {
  SimulatedServer server(std::nullopt, roofline_us);
  server.run(100, 9);
  const int32_t tokens = server.budget.tokens(step_shape(16, 500, 0), 0, kRoom);
  EXPECT_GT(tokens, 150);
  EXPECT_LT(tokens, 450);
}

TEST(PrefillBudget, KeepsAServersStepsWithinTheTarget) {
  for (auto* const true_us : {arithmetic_us, roofline_us}) {
    constexpr double kTargetMs = 10.0;
    SimulatedServer with(kTargetMs, true_us), without(0.0, true_us);
    with.run(200, 7);
    without.run(200, 7);
    EXPECT_LT(with.late_mixed_us(0.95), 1.1e3 * kTargetMs);
    EXPECT_GT(with.late_mixed_us(0.5), 0.5e3 * kTargetMs) << "it gives away what would fit";
    EXPECT_GT(without.late_mixed_us(0.95), 1.5 * with.late_mixed_us(0.95));
  }
}

TEST(PrefillBudget, ServesEveryoneWhateverTheTarget) {
  SimulatedServer server(1e-3, arithmetic_us);
  server.run(60, 8);
  for (int i = 0; i < 60; ++i)
    EXPECT_EQ(server.steps[std::to_string(i)].finish, FinishReason::length);
}

TEST(PrefillBudget, IsNamedByTheBatch) {
  const StepCost cost = taught_cost();
  const PrefillBudget budget(ns_of(5.0), cost);
  SchedulerSteps steps(SimulatedServer::options(), &budget);
  steps.add("a", 100);
  EXPECT_EQ(steps.step(), "| a:0+100*");
  EXPECT_EQ(steps.batch().prefill_budget, 0) << "nobody decoded";
  steps.add("b", 1000);
  steps.step();
  EXPECT_GE(steps.batch().prefill_budget, PrefillBudget::kLeastTokens);
  EXPECT_EQ(steps.batch().sequences.back().num_tokens, steps.batch().prefill_budget);
}

}  // namespace
}  // namespace minfer::test
