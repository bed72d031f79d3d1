#include <limits>

#include <gtest/gtest.h>

#include "tests/support/profiling/traced_profile.h"

namespace minfer {
namespace {

using test::ParsedTrace;
using test::sampled_profile;
using test::steps_of;
using test::traced;

/// The sample's steps on two ranks; the second begins 2 us later.
ProfileFile ranked_file() {
  ProfileFile file = sampled_profile();
  for (const StepSummary& step : file.steps) {
    for (const int32_t rank : {1, 0}) {
      const int64_t begin_ns = step.start_ns + 2'000 * rank;
      file.rank_steps.push_back({.step = step.step,
                                 .rank = rank,
                                 .begin_ns = begin_ns,
                                 .end_ns = begin_ns + 10'000,
                                 .computed_ns = 6'000,
                                 .exchange_ns = 4'000,
                                 .waited_ns = 3'000,
                                 .host_ns = 45'000,
                                 .launch_ns = 30'000,
                                 .idle_ns = 5'000});
    }
  }
  return file;
}

TEST(RankTracks, RanksHaveProcessesOfTheirOwn) {
  const ProfileFile file = ranked_file();
  const ParsedTrace trace = traced(file);
  const auto first = trace.on("rank 0/steps"), second = trace.on("rank 1/steps");
  ASSERT_EQ(first.size(), 4 * file.steps.size());
  ASSERT_EQ(second.size(), first.size());
  const auto steps = trace.on("CPU " + file.header.device + "/steps, phases, layers and ops");
  EXPECT_EQ(first[0].begin_ns, steps[0].begin_ns) << "on the clock of all else";
  EXPECT_EQ(second[0].begin_ns, steps[0].begin_ns + 2'000);
  EXPECT_EQ(second[4].name, "step 1");
  EXPECT_EQ(second[4].args["host us"], 45.0);
  EXPECT_EQ(second[4].args["idle us"], 5.0);
  const auto expect_part = [&](size_t place, const std::string& name, int64_t begin_ns, int64_t end_ns) {
    EXPECT_EQ(second[place].name, name);
    EXPECT_EQ(second[place].begin_ns, second[4].begin_ns + begin_ns);
    EXPECT_EQ(second[place].end_ns, second[4].begin_ns + end_ns);
  };
  expect_part(5, "computing", 0, 6'000);
  expect_part(6, "waiting for ranks", 6'000, 9'000);
  expect_part(7, "exchanging", 9'000, 10'000);
  EXPECT_FALSE(traced(sampled_profile()).tracks().contains("rank 0/steps"))
      << "of one rank there is nothing to tell";
}

TEST(RankTracks, KernelsOfOtherRanksStandOnTheirTracks) {
  ProfileFile file = ranked_file();
  for (const int32_t rank : {0, 1}) {  // within a step the lines of the two ranks follow each other
    for (const int64_t place : {0, 1, 2}) {
      KernelLine kernel;
      kernel.step = 1;
      kernel.rank = rank;
      kernel.kernel = kernel.op = "k";
      kernel.phase = StepPhase::decode;
      kernel.stream = 7;
      kernel.start_ns = file.steps[1].start_ns + 3'000 * place;
      kernel.us = kernel.own_us = place == 1 ? 4.0 : 2.0;  // the last one begins before it ends
      file.kernels.push_back(kernel);
    }
  }
  const ParsedTrace trace = traced(file);
  EXPECT_EQ(trace.on("CPU " + file.header.device + "/stream 7").size(), 3u);
  const auto slices = trace.on("rank 1/stream 7");
  ASSERT_EQ(slices.size(), 3u);
  EXPECT_EQ(slices[0].end_ns - slices[0].begin_ns, 2'000);
  EXPECT_EQ(slices[2].begin_ns, slices[1].end_ns);
  EXPECT_TRUE(trace.on("rank 0/stream 7").empty()) << "the first one's are the device's";
}

TEST(RankTracks, CountersOfRanksStandInTheirProcesses) {
  ProfileFile file = ranked_file();
  for (const int32_t rank : {1, 0}) {
    CounterWindow& window = file.counters.emplace_back();
    window.rank = rank;
    for (const int64_t number : {1, 2, 777}) {
      CounterStep& step = window.steps.emplace_back();
      step.step = number;
      step.us = 10.0;
      step.covered = 0.5;
      step.measured[Counter::dram_read_bytes] = (10.0 + rank) * 1e6;
      step.measured[Counter::nvlink_received_bytes] = 2e6;
      step.measured[Counter::nvlink_sent_bytes] = 3e6;
    }
  }
  const ParsedTrace trace = traced(file);
  EXPECT_EQ(trace.counter("GB/s measured", "CPU " + file.header.device).size(), 2u) << "as of one rank";
  const auto first = trace.counter("GB/s measured", "rank 0"),
             second = trace.counter("GB/s measured", "rank 1");
  ASSERT_EQ(first.size(), 2u) << "those of steps that there are";
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(first[0], (ParsedTrace::Json{{"read", 2000.0}}));
  EXPECT_EQ(second[0], (ParsedTrace::Json{{"read", 2200.0}}));
  const auto linked = trace.counter("NVLink GB/s measured", "rank 1");
  ASSERT_EQ(linked.size(), 2u);
  EXPECT_EQ(linked[1], (ParsedTrace::Json{{"received", 400.0}, {"sent", 600.0}}));
  EXPECT_EQ(traced(file, {.steps = {{2, 4}}}).counter("GB/s measured", "rank 1").size(), 1u);

  std::erase_if(file.counters, [](const CounterWindow& window) { return window.rank == 1; });
  EXPECT_TRUE(traced(file).counter("GB/s measured", "rank 0").empty()) << "the device has them";
}

TEST(RankTracks, FiltersChooseStepsOfRanks) {
  const auto slices = traced(ranked_file(), {.steps = {{2, 4}}}).on("rank 1/steps");
  ASSERT_EQ(slices.size(), 12u);
  EXPECT_EQ(slices.front().name, "step 2");
}

TEST(RankTracks, AbsurdTimesOfRanksKeepTheTracksSound) {
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max(), kHourNs = 3'600'000'000'000;
  ProfileFile file = ranked_file();
  for (size_t i = 0; i < file.rank_steps.size(); ++i) {
    RankStep& step = file.rank_steps[i];
    if (i % 3 == 0) step.begin_ns = i % 2 == 0 ? 0 : step.begin_ns + kHourNs;
    if (i % 4 == 0) step.end_ns = i % 8 == 0 ? 0 : step.end_ns + kHourNs;
    if (i % 5 == 0) step.computed_ns = step.exchange_ns = step.waited_ns = kLargest;
    if (i % 7 == 0) step.rank = std::numeric_limits<int32_t>::max();
  }
  const ParsedTrace trace = traced(file);
  EXPECT_TRUE(trace.tracks().contains("rank 1/steps"));
  EXPECT_EQ(steps_of(trace).size(), file.steps.size());
}

}  // namespace
}  // namespace minfer
