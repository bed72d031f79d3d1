// Recording for as long as a server runs: 24 hours of steps take no more memory than the first minutes.
// Runs $MINFER_TEST_OPS steps: 10,000,000 are a day's steps of 8.6 ms each.
#include <gtest/gtest.h>

#include "profiling/json/profile_writer.h"
#include "profiling/summary/live_profile.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/random_operations.h"
#include "tests/support/resident_memory.h"

namespace minfer {
namespace {

constexpr int64_t kMostGrowthBytes = int64_t{4} << 20;

TEST(LongRecording, TakesNoMoreMemoryThanItsBeginning) {
  const int64_t num_steps = test::num_random_operations();
  LaunchTable launches;
  for (const KernelLaunch& launch : test::sample_launches())
    launches.add(launch);
  ProfileHeader header = test::sample_header();
  header.launches = &launches;
  StepRecorder recorder({.num_ops = header.ops.size(), .asynchronous = true});
  ProfileWriter writer("/dev/null", header);
  recorder.add_sink(writer);
  LiveProfile live(recorder, header);
  const StepRecord sample = test::sample_device_record(0, true);
  int64_t early_bytes = 0;
  for (int64_t step = 0; step < num_steps; ++step) {
    recorder.begin_step();
    StepStamps& stamps = *recorder.stamps();
    stamps.launches = sample.stamps.launches;
    // Kinds of launches come and go, as with prompts of every length.
    stamps.launches.front() = static_cast<int32_t>(step % 50'000);
    stamps.ops = sample.stamps.ops;
    stamps.end_ns = sample.stamps.end_ns;
    recorder.set_batch(sample.batch);
    if (recorder.wants_requests()) recorder.add_request("request-" + std::to_string(step));
    recorder.end_step();
    if (step % 20'000 == 0) live.refresh();
    if (step == num_steps / 4) early_bytes = test::resident_bytes();
  }
  live.refresh();
  const int64_t growth = test::resident_bytes() - early_bytes;
  recorder.remove_sink(writer);
  const ProfileWriter::Stats stats = writer.close();
  EXPECT_EQ(stats.written + stats.dropped, static_cast<uint64_t>(num_steps)) << "each is written or counted";
  EXPECT_GT(stats.written, 0u);
  EXPECT_EQ(live.last(1).back().step, num_steps - 1);
  EXPECT_LT(growth, kMostGrowthBytes) << "between a quarter of the steps and all of them";
}

}  // namespace
}  // namespace minfer
