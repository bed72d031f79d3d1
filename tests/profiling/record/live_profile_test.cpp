#include "profiling/summary/live_profile.h"

#include <gmock/gmock.h>

#include "profiling/json/lines.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

/// Records `record`'s batch and stamps as the recorder's next step.
void record_step(StepRecorder& recorder, const StepRecord& record) {
  recorder.begin_step();
  recorder.set_batch(record.batch);
  *recorder.stamps() = record.stamps;
  recorder.end_step();
}

std::vector<int64_t> numbers(std::span<const StepSummary> steps) {
  std::vector<int64_t> result;
  for (const StepSummary& step : steps)
    result.push_back(step.step);
  return result;
}

class LiveProfileTest : public testing::Test {
 protected:
  void record(int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++recorded_)
      record_step(recorder_, test::sample_record(recorded_, 2, recorded_ % 3 == 0 ? 8 : 0));
  }

  StepRecorder recorder_{{.num_ops = test::sample_ops().size(), .ring_bytes = 1}};  // holds 16
  LiveProfile profile_{recorder_, test::sample_header()};
  int64_t recorded_ = 0;
};

TEST_F(LiveProfileTest, HoldsNothingBeforeTheFirstStep) {
  profile_.refresh();
  EXPECT_TRUE(profile_.last(10).empty());
}

TEST_F(LiveProfileTest, TakesEachStepOnce) {
  record(3);
  EXPECT_TRUE(profile_.last(10).empty()) << "nobody asked yet";
  profile_.refresh();
  profile_.refresh();
  EXPECT_THAT(numbers(profile_.last(10)), testing::ElementsAre(0, 1, 2));
  record(2);
  profile_.refresh();
  EXPECT_THAT(numbers(profile_.last(10)), testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(LiveProfileTest, SelectsByCountAndBySince) {
  record(6);
  profile_.refresh();
  EXPECT_THAT(numbers(profile_.last(2)), testing::ElementsAre(4, 5));
  EXPECT_THAT(numbers(profile_.last(100, 3)), testing::ElementsAre(4, 5));
  EXPECT_THAT(numbers(profile_.last(1, 3)), testing::ElementsAre(5));
  EXPECT_TRUE(profile_.last(100, 5).empty());
  EXPECT_TRUE(profile_.last(100, 1'000'000).empty());
}

TEST_F(LiveProfileTest, KeepsAsManyAsTheRing) {
  for (int i = 0; i < 5; ++i) {
    record(10);
    profile_.refresh();
  }
  ASSERT_EQ(recorder_.capacity(), 16u);
  const std::vector<int64_t> held = numbers(profile_.last(100));
  ASSERT_EQ(held.size(), 16u);
  EXPECT_EQ(held.front(), 34);
  EXPECT_EQ(held.back(), 49);
  record(40);
  profile_.refresh();
  EXPECT_EQ(numbers(profile_.last(100)).front(), 74);
}

// Reading after each step or once in a while gives the same summaries: a mixed step is split by the times of
// the pure decode steps before it.
TEST_F(LiveProfileTest, SummariesAreThoseOfAProfileFile) {
  StepSummariser summariser(test::sample_ops(), test::sample_header().ceilings, ProfileDetail::op);
  std::string expected, found;
  for (int i = 0; i < 9; ++i) {
    record(1);
    profile_.refresh();
    append_line(expected, summariser.summarise(recorder_.after(-1).back()));
  }
  for (const StepSummary& step : profile_.last(100))
    append_line(found, step);
  EXPECT_EQ(found, expected);
}

/// A step from `end_s` - 0.1 s to `end_s`, of 3 prompt tokens and 5 sampled ones.
StepSummary step_ending_at(int64_t number, double end_s) {
  StepSummary step;
  step.step = number;
  step.start_ns = static_cast<int64_t>((end_s - 0.1) * 1e9);
  step.wall_us = 1e5;
  step.batch.shape.prefill_tokens = 3;
  step.batch.shape.decode_tokens = 4;
  step.batch.shape.prefill_sequences = 1;
  step.batch.shape.prefill_logit_rows = 1;
  step.batch.shape.decode_logit_rows = 4;
  return step;
}

TEST(ThroughputTest, CountsStepsOfTheWindow) {
  const std::vector<StepSummary> steps{step_ending_at(0, 2.0), step_ending_at(1, 7.0),
                                       step_ending_at(2, 9.0)};
  const Throughput result = throughput(steps, 10 * kSecond, 5 * kSecond);
  EXPECT_DOUBLE_EQ(result.window_s, 5.0);
  EXPECT_DOUBLE_EQ(result.steps_per_s, 2.0 / 5.0);
  EXPECT_DOUBLE_EQ(result.prompt_tokens_per_s, 6.0 / 5.0);
  EXPECT_DOUBLE_EQ(result.generated_tokens_per_s, 10.0 / 5.0);
}

TEST(ThroughputTest, WindowBeginsWithTheOldestStepThatIsHeld) {
  const std::vector<StepSummary> steps{step_ending_at(7, 8.1), step_ending_at(8, 9.0)};
  const Throughput result = throughput(steps, 10 * kSecond, 5 * kSecond);
  EXPECT_DOUBLE_EQ(result.window_s, 2.0);
  EXPECT_DOUBLE_EQ(result.generated_tokens_per_s, 10.0 / 2.0);
}

TEST(ThroughputTest, RowsThatScoreAPromptGenerateNothing) {
  std::vector<StepSummary> steps{step_ending_at(7, 8.1), step_ending_at(8, 9.0)};
  steps[1].batch.shape.prefill_logit_rows = 1000;
  EXPECT_DOUBLE_EQ(throughput(steps, 10 * kSecond, 5 * kSecond).generated_tokens_per_s, 10.0 / 2.0);
}

TEST(ThroughputTest, IsZeroWithoutSteps) {
  EXPECT_EQ(throughput({}, 10 * kSecond, 5 * kSecond).generated_tokens_per_s, 0.0);
  const std::vector<StepSummary> steps{step_ending_at(0, 2.0)};
  EXPECT_EQ(throughput(steps, 10 * kSecond, 5 * kSecond).generated_tokens_per_s, 0.0);
}

}  // namespace
}  // namespace minfer
