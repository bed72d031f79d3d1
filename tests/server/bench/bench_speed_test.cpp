// The statistics of speed tests.
#include "server/bench/bench_speed.h"

#include <gmock/gmock.h>

#include "tests/support/last_steps.h"

namespace minfer {
namespace {

TEST(BenchSpeed, OverheadIsTheTimeAddedOfEachTurn) {
  const OverheadResult result{.recorded = {100.0, 80.0, 50.0}, .unrecorded = {101.0, 100.0, 50.0}};
  EXPECT_THAT(result.overheads(),
              testing::ElementsAre(testing::DoubleNear(0.01, 1e-12), testing::DoubleNear(0.25, 1e-12), 0.0));
}

TEST(BenchSpeed, OverheadIsMeasuredInPairsAndLeavesRecordingOn) {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 64;
  options.threads = 1;
  Engine engine(open_model("synthetic:tiny:q8_0"), options);
  const SpeedResult test{.generated_tokens = 3, .parallel = 2, .samples_ns = {}};
  const OverheadResult result = measure_recording_overhead(engine, test, 4);
  EXPECT_EQ(result.recorded.size(), 4u);
  EXPECT_EQ(result.unrecorded.size(), 4u);
  EXPECT_THAT(result.recorded, testing::Each(testing::Gt(0.0)));
  const size_t steps = test::last_steps(engine.recorder(), 1000).size();
  EXPECT_EQ(steps, 5u * 3);  // the turns with recording, and one warm-up
  measure_recording_overhead(engine, test, 1);
  EXPECT_EQ(test::last_steps(engine.recorder(), 1000).size(), steps + 2 * 3);
}

}  // namespace
}  // namespace minfer
