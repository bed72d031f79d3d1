// Windows of hardware counters of several ranks of a running engine, from made-up samplers.
#include <array>

#include <gtest/gtest.h>

#include "tests/support/engine/rank_run.h"
#include "tests/support/fake_sampler.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

using test::FakeSampler;
using test::WindowList;

constexpr size_t kReadRanks = 2;

TEST(RankCounters, StepsOfEachRankAreLaidOverItsOwnWindows) {
  Engine engine(open_model(""), test::rank_options(DeviceChoice::cpu, kReadRanks));
  std::vector<RankCounters> ranks = engine.counters();
  ASSERT_EQ(ranks.size(), 1u) << "CPUs have no counters, which the first rank says for all";
  EXPECT_EQ(ranks[0].sampler, nullptr);
  EXPECT_EQ(ranks[0].ops.size(), engine.ops().size());

  std::array<FakeSampler, kReadRanks> samplers;
  ranks[0].sampler = samplers.data();
  ranks.push_back({.rank = 1, .sampler = &samplers[1], .ops = ranks[0].ops});
  WindowList windows;
  // A window has whole steps also where busy processes share the cores.
  CounterCollector collector(ranks, {.window = std::chrono::milliseconds(200)}, windows.sink());
  engine.recorder().add_sink(collector);
  engine.watch_rank_stamps(&collector);
  const auto num_with_steps = [&](int32_t rank) {
    return std::ranges::count_if(windows.all(), [&](const CounterWindow& window) {
      return window.rank == rank && !window.steps.empty();
    });
  };
  int requests = 0;
  EXPECT_TRUE(test::wait_until([&] {
    if (!engine.has_work()) engine.submit(test::greedy_request(std::to_string(requests++), {1, 2, 3}, 200));
    engine.step();
    return num_with_steps(0) >= 2 && num_with_steps(1) >= 2;
  }));
  engine.watch_rank_stamps(nullptr);
  engine.recorder().remove_sink(collector);

  for (const CounterWindow& window : windows.all()) {
    EXPECT_EQ(window.error, "");
    for (const CounterStep& step : window.steps) {
      EXPECT_GT(step.us, 0.0);
      EXPECT_GT(step.counted_read_bytes, 0);
    }
    for (const CounterWork& work : window.work)
      EXPECT_FALSE(work.ops.empty());
  }
}

/// Counts the calls that it gets.
class StampCounter final : public RankStampSink {
 public:
  void consume_stamps(int32_t rank, int64_t /*step*/, const StepStamps& stamps) noexcept override {
    EXPECT_GE(rank, 1);
    EXPECT_FALSE(stamps.ops.empty());
    EXPECT_GE(stamps.end_ns, stamps.ops.front().begin_ns);
    ++count;
  }
  std::atomic<int> count{0};
};

TEST(RankCounters, NobodyIsToldOfStampsThatAreNotWatchedAnyMore) {
  Engine engine(open_model(""), test::rank_options(DeviceChoice::cpu, kReadRanks));
  engine.submit(test::greedy_request("a", {1, 2, 3}, 200));
  StampCounter stamps;
  engine.watch_rank_stamps(&stamps);
  EXPECT_TRUE(test::wait_until([&] {
    if (engine.has_work()) engine.step();
    return stamps.count >= 10;
  }));
  engine.watch_rank_stamps(nullptr);
  const int before = stamps.count;
  while (engine.has_work())
    engine.step();
  EXPECT_EQ(stamps.count, before);
}

TEST(RankCounters, OneRankHasNoStampsOfOthers) {
  Engine engine(open_model(""), test::rank_options(DeviceChoice::cpu, 1));
  StampCounter stamps;
  engine.watch_rank_stamps(&stamps);
  engine.submit(test::greedy_request("a", {1, 2, 3}, 5));
  while (engine.has_work())
    engine.step();
  EXPECT_EQ(stamps.count, 0);
  EXPECT_EQ(engine.counters().size(), 1u);
}

}  // namespace
}  // namespace minfer
