// Step times that the engine expected, against the measured ones: the finding, and the table of a report.
#include <gtest/gtest.h>

#include "profiling/report/report.h"
#include "tests/support/found_in.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer::test {
namespace {

/// Every second step computes prompt tokens for a target. `is_wrong` selects the steps that took four times the expected time.
template <class IsWrong>
FoundIn run_of_predictions(IsWrong is_wrong, int32_t prefill_budget) {
  FoundIn run;
  run.steps([&](StepSummary& step) {
    step.batch.predicted_ns = 1'050'000;
    if (step.step % 2 == 0) return;
    step.batch.shape.prefill_tokens = step.batch.shape.prefill_sequences = 64;
    step.batch.prefill_budget = prefill_budget;
    if (is_wrong(step.step)) step.batch.predicted_ns = 250'000;
  });
  return run;
}

TEST(PredictionRule, NamesATargetThatRestsOnWrongTimes) {
  const FoundIn run = run_of_predictions([](int64_t) { return true; }, 64);
  const Finding finding = run.of("step times mispredicted");
  EXPECT_NEAR(finding.gain, 0.75, 0.01);
  EXPECT_NE(finding.evidence.find("50 steps"), std::string::npos) << finding.evidence;
  EXPECT_NE(finding.evidence.find("75 % off in the median"), std::string::npos) << finding.evidence;
  EXPECT_NE(finding.evidence.find("100 % of them longer"), std::string::npos) << finding.evidence;
}

TEST(PredictionRule, IsSilentWhereMostAreRightOrNothingRestsOnThem) {
  const FoundIn some = run_of_predictions([](int64_t step) { return step % 10 == 1; }, 64);
  EXPECT_EQ(some.of("step times mispredicted").gain, 0.0);
  const FoundIn no_target = run_of_predictions([](int64_t) { return true; }, 0);
  EXPECT_EQ(no_target.of("step times mispredicted").gain, 0.0);
}

// Slots and KV blocks were free: the target made requests wait.
TEST(PredictionRule, AStepThatFillsItsTargetLacksNoMemory) {
  for (const int32_t budget : {64, 65}) {
    FoundIn run;
    run.steps([&](StepSummary& step) {
      step.batch.shape.prefill_tokens = 64;
      step.batch.shape.prefill_sequences = 1;
      step.batch.prefill_budget = budget;
      step.batch.waiting = 3;
    });
    EXPECT_EQ(run.evidence.steps.memory_full.steps, budget == 64 ? 0 : 100);
  }
}

TEST(PredictionTable, HasTheErrorsOfEachPhase) {
  ProfileFile file;
  file.header = sample_header(ProfileDetail::op);
  file.steps = sample_steps(6, ProfileDetail::op);
  EXPECT_EQ(render_report(file, {}).find("what the engine expected"), std::string::npos);
  for (StepSummary& step : file.steps)
    step.batch.predicted_ns = static_cast<int64_t>(step.wall_us * 1e3 * (step.step % 2 == 0 ? 0.8 : 1.2));
  const Aggregate sum = aggregate(file.steps);
  EXPECT_EQ(sum.all.prediction.steps, 6);
  EXPECT_EQ(sum.all.prediction.longer, 3);
  EXPECT_NEAR(sum.all.prediction.median, 0.2, 0.01);
  EXPECT_NEAR(sum.all.prediction.p95, 0.2, 0.01);
  EXPECT_NE(render_report(file, {}).find("what the engine expected"), std::string::npos);
  EXPECT_NE(render_report(file, {.format = ReportFormat::json}).find("\"prediction_error\""),
            std::string::npos);
}

}  // namespace
}  // namespace minfer::test
