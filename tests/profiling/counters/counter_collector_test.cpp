#include "profiling/counters/counter_collector.h"

#include <algorithm>
#include <array>
#include <thread>

#include <gtest/gtest.h>

#include "profiling/counters/latest_counters.h"
#include "tests/support/allocations.h"
#include "tests/support/fake_sampler.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

using test::FakeSampler;
using test::kBytesANanosecond;
using test::WindowList;

std::vector<OpInfo> two_ops() {
  return {OpInfo{.name = "first", .weight_bytes = 1'000}, OpInfo{.name = "second", .weight_bytes = 2'000}};
}

/// The counters of one rank.
std::vector<RankCounters> counters_of(CounterSampler* sampler) {
  return {{.rank = 0, .sampler = sampler, .ops = two_ops()}};
}

/// Runs steps of two ops in real time, like the engine's thread.
class FakeEngine {
 public:
  void step(CounterCollector& collector) {
    StepRecord record;
    record.step = next_step_++;
    record.batch.graph_batch = 1;
    record.batch.shape.decode_tokens = record.batch.shape.decode_sequences = 1;
    record.start_ns = now_ns();
    record.stamps.ops.push_back({.op = 0, .begin_ns = now_ns()});
    std::this_thread::sleep_for(std::chrono::microseconds(200));
    record.stamps.ops.push_back({.op = 1, .begin_ns = now_ns()});
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    record.stamps.end_ns = record.end_ns = now_ns();
    collector.consume(record);
  }
  int64_t num_steps() const { return next_step_; }

 private:
  int64_t next_step_ = 0;
};

/// Runs steps until `holds()`. Returns false if it never does.
template <class Condition>
bool step_until(FakeEngine& engine, CounterCollector& collector, Condition holds) {
  return test::wait_until([&] {
    engine.step(collector);
    return holds();
  });
}

TEST(CounterCollector, WindowsHoldTheStepsThatRanInThem) {
  FakeSampler sampler;
  WindowList windows;
  FakeEngine engine;
  {
    CounterCollector collector(counters_of(&sampler), {.window = std::chrono::milliseconds(5)},
                               windows.sink());
    EXPECT_TRUE(step_until(engine, collector, [&] {
      int with_steps = 0;
      for (const CounterWindow& window : windows.all())
        with_steps += window.steps.empty() ? 0 : 1;
      return with_steps >= 3;
    }));
  }
  EXPECT_EQ(sampler.prepared, 1);
  EXPECT_EQ(sampler.closed, 1);
  int64_t last_step = -1;
  for (const CounterWindow& window : windows.all()) {
    EXPECT_EQ(window.error, "");
    EXPECT_EQ(window.interval_ns, 1'000);
    for (const CounterStep& step : window.steps) {
      EXPECT_GT(step.step, last_step);
      last_step = step.step;
      EXPECT_NEAR(step.covered, 1.0, 1e-9);
      // Idle time around a step reads as much here, because its first and last sample count whole.
      EXPECT_NEAR(step.measured[Counter::dram_read_bytes] / (step.us * 1e3 * kBytesANanosecond), 1.0, 0.02);
    }
    for (const CounterWork& work : window.work) {
      ASSERT_EQ(work.ops.size(), 2u);
      EXPECT_EQ(work.ops[1].op, "second");
      EXPECT_GT(work.ops[0].read_gbps(), 0.0);
    }
  }
}

TEST(CounterCollector, SaysWhyThereAreNoCounters) {
  WindowList windows;
  {
    CounterCollector collector(counters_of(nullptr), {}, windows.sink());
    FakeEngine().step(collector);
  }
  ASSERT_EQ(windows.all().size(), 1u);
  EXPECT_NE(windows.all()[0].error.find("has none"), std::string::npos);

  FakeSampler sampler;
  sampler.prepare_error = "refused (35)";
  {
    CounterCollector collector(counters_of(&sampler), {}, windows.sink());
    FakeEngine().step(collector);
  }
  ASSERT_EQ(windows.all().size(), 2u);
  EXPECT_NE(windows.all()[1].error.find("refused (35)"), std::string::npos);
  EXPECT_TRUE(sampler.begins_ns.empty());
}

TEST(CounterCollector, EndsWithAnErrorInTheMiddle) {
  FakeSampler sampler;
  sampler.good_windows = 2;
  WindowList windows;
  FakeEngine engine;
  {
    CounterCollector collector(counters_of(&sampler), {.window = std::chrono::milliseconds(2)},
                               windows.sink());
    EXPECT_TRUE(step_until(engine, collector, [&] { return windows.all().size() == 3; }));
    for (int i = 0; i < 30; ++i)
      engine.step(collector);
  }
  ASSERT_EQ(windows.all().size(), 3u);
  EXPECT_EQ(windows.all()[1].error, "");
  EXPECT_NE(windows.all()[2].error.find("the begin failed"), std::string::npos);
  EXPECT_EQ(sampler.begins_ns.size(), 3u);
  EXPECT_EQ(sampler.closed, 1);
}

TEST(CounterCollector, LeavesAnIdleEngineAlone) {
  FakeSampler sampler;
  WindowList windows;
  FakeEngine engine;
  {
    CounterCollector collector(counters_of(&sampler), {.window = std::chrono::milliseconds(1)},
                               windows.sink());
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_TRUE(windows.all().empty());
    engine.step(collector);
    // The step ended before the window began, and none follows.
    EXPECT_TRUE(test::wait_until([&] { return windows.all().size() == 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    EXPECT_EQ(windows.all().size(), 1u);
  }
  EXPECT_TRUE(windows.all()[0].steps.empty());
}

TEST(CounterCollector, OpensWindowsInItsRangeAlone) {
  FakeSampler sampler;
  WindowList windows;
  FakeEngine engine;
  {
    CounterCollector collector(counters_of(&sampler),
                               {.window = std::chrono::milliseconds(1), .first_step = 40, .last_step = 60},
                               windows.sink());
    while (engine.num_steps() < 39) {
      engine.step(collector);
      EXPECT_TRUE(windows.all().empty());
    }
    while (engine.num_steps() < 120)
      engine.step(collector);
  }
  for (const CounterWindow& window : windows.all()) {
    for (const CounterStep& step : window.steps)
      EXPECT_GE(step.step, 39);
  }
}

TEST(CounterCollector, WaitsBetweenWindowsAsLongAsItIsTold) {
  FakeSampler sampler;
  WindowList windows;
  FakeEngine engine;
  {
    CounterCollector collector(
        counters_of(&sampler),
        {.window = std::chrono::milliseconds(1), .every = std::chrono::milliseconds(40)}, windows.sink());
    EXPECT_TRUE(step_until(engine, collector, [&] { return windows.all().size() >= 3; }));
  }
  for (size_t i = 1; i < sampler.begins_ns.size(); ++i)
    EXPECT_GE(sampler.begins_ns[i] - sampler.begins_ns[i - 1], 39'000'000);
}

/// Ranks of a step with the same ops, each with half of the weights of the one before.
std::vector<RankCounters> counters_of_two(CounterSampler* first, CounterSampler* second) {
  std::vector<OpInfo> halves = two_ops();
  for (OpInfo& op : halves)
    op.weight_bytes /= 2;
  return {{.rank = 0, .sampler = first, .ops = two_ops()}, {.rank = 1, .sampler = second, .ops = halves}};
}

/// Runs steps of two ranks in real time. The second rank's steps begin later, and its first op is the shorter one.
class TwoRankEngine {
 public:
  void step(CounterCollector& collector) {
    const int64_t step = next_step_++;
    StepRecord record;
    record.step = step;
    record.batch.graph_batch = 1;
    record.batch.shape.decode_tokens = record.batch.shape.decode_sequences = 1;
    StepStamps second;
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::microseconds(100)); };
    record.start_ns = now_ns();
    record.stamps.ops.push_back({.op = 0, .begin_ns = now_ns()});
    pause();
    second.ops.push_back({.op = 0, .begin_ns = now_ns()});
    pause();
    second.ops.push_back({.op = 1, .begin_ns = now_ns()});
    record.stamps.ops.push_back({.op = 1, .begin_ns = now_ns()});
    pause();
    record.stamps.end_ns = record.end_ns = now_ns();
    pause();
    second.end_ns = now_ns();
    us_.push_back({us_of(record.stamps.end_ns - record.stamps.ops[0].begin_ns),
                   us_of(second.end_ns - second.ops[0].begin_ns)});
    if (step % 5 != 4) collector.consume(record);  // in one step of five the first rank's record is lost
    collector.consume_stamps(1, step, second);
    collector.consume_stamps(7, step, second);  // nobody has asked for these
  }
  /// The time of a step on a rank.
  double us(int64_t step, int32_t rank) const {
    return us_.at(static_cast<size_t>(step)).at(static_cast<size_t>(rank));
  }

 private:
  int64_t next_step_ = 0;
  std::vector<std::array<double, 2>> us_;
};

int64_t count_good(const std::vector<CounterWindow>& windows, int32_t rank) {
  return std::ranges::count_if(windows, [&](const CounterWindow& window) {
    return window.rank == rank && window.error.empty() && !window.steps.empty();
  });
}

TEST(CounterCollector, EachOfTwoRanksHasWindowsOfItsOwnStampsAndOps) {
  FakeSampler first, second;
  WindowList windows;
  TwoRankEngine engine;
  {
    CounterCollector collector(counters_of_two(&first, &second), {.window = std::chrono::milliseconds(5)},
                               windows.sink());
    EXPECT_TRUE(test::wait_until([&] {
      engine.step(collector);
      return count_good(windows.all(), 0) >= 3 && count_good(windows.all(), 1) >= 3;
    }));
  }
  EXPECT_EQ(first.closed, 1);
  EXPECT_EQ(second.closed, 1);
  EXPECT_EQ(first.begins_ns.size(), second.begins_ns.size()) << "their windows are of the same steps";
  for (const CounterWindow& window : windows.all()) {
    EXPECT_EQ(window.error, "");
    for (const CounterStep& step : window.steps) {
      EXPECT_NE(step.step % 5, 4) << "what it computed is not known";
      EXPECT_NEAR(step.us, engine.us(step.step, window.rank), 1e-3);
      EXPECT_EQ(step.counted_read_bytes, window.rank == 0 ? 3'000 : 1'500);
      EXPECT_NEAR(step.covered, 1.0, 1e-9);
    }
    for (const CounterWork& work : window.work) {
      EXPECT_EQ(work.graph_batch, 1);
      ASSERT_EQ(work.ops.size(), 2u);
      EXPECT_EQ(work.ops[1].counted_read_bytes, window.rank == 0 ? 2'000 : 1'000);
    }
  }
}

TEST(CounterCollector, ARankWithoutCountersSaysSoAndTheOthersGoOn) {
  FakeSampler first, second;
  second.prepare_error = "refused (35)";
  WindowList windows;
  TwoRankEngine engine;
  {
    std::vector<RankCounters> ranks = counters_of_two(&first, &second);
    ranks.push_back({.rank = 2, .missing = "it is in another process"});
    CounterCollector collector(ranks, {.window = std::chrono::milliseconds(2)}, windows.sink());
    EXPECT_TRUE(test::wait_until([&] {
      engine.step(collector);
      return count_good(windows.all(), 0) >= 2;
    }));
  }
  const std::vector<CounterWindow> all = windows.all();
  EXPECT_EQ(all[0].rank, 1);
  EXPECT_EQ(all[0].error, "hardware counters of rank 1: refused (35)");
  EXPECT_EQ(all[1].rank, 2);
  EXPECT_EQ(all[1].error, "hardware counters of rank 2: it is in another process");
  EXPECT_EQ(std::ranges::count(all, 0, &CounterWindow::rank), std::ssize(all) - 2);
  EXPECT_TRUE(second.begins_ns.empty());
}

TEST(CounterCollector, TheOtherRankGoesOnWhenTheFirstOnesWindowsFail) {
  FakeSampler first, second;
  first.good_windows = 1;
  WindowList windows;
  TwoRankEngine engine;
  {
    CounterCollector collector(counters_of_two(&first, &second), {.window = std::chrono::milliseconds(5)},
                               windows.sink());
    EXPECT_TRUE(test::wait_until([&] {
      engine.step(collector);
      return count_good(windows.all(), 1) >= 3;
    }));
  }
  std::vector<std::string> errors;
  for (const CounterWindow& window : windows.all()) {
    if (!window.error.empty()) errors.push_back(window.error);
  }
  EXPECT_EQ(errors, std::vector<std::string>{"hardware counters of rank 0: the begin failed"});
  EXPECT_EQ(first.begins_ns.size(), 2u) << "it is not asked again";
}

TEST(LatestCounters, KeepsTheLastOfEachRank) {
  LatestCounters latest;
  CounterWindow window;
  for (int64_t i = 0; i < 20; ++i) {
    window.begin_ns = i;
    window.rank = i == 3 ? 1 : 0;
    latest.add(window);
  }
  const std::vector<CounterWindow> all = latest.all();
  ASSERT_EQ(std::ssize(all), LatestCounters::kMost + 1);
  EXPECT_EQ(all.front().rank, 1);
  EXPECT_EQ(all.front().begin_ns, 3);
  EXPECT_EQ(all[1].begin_ns, 20 - LatestCounters::kMost);
  EXPECT_EQ(all.back().begin_ns, 19);
}

TEST(CounterCollector, TheEnginesThreadAllocatesNothing) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  FakeSampler sampler;
  WindowList windows;
  FakeEngine engine;
  FakeSampler second;
  CounterCollector collector(counters_of_two(&sampler, &second), {.window = std::chrono::milliseconds(2)},
                             windows.sink());
  ASSERT_TRUE(step_until(engine, collector, [&] { return !windows.all().empty(); }));
  StepRecord record;
  reserve_stamps(record, 2);
  record.stamps.ops = {{.op = 0, .begin_ns = 0}, {.op = 1, .begin_ns = 10}};
  record.end_ns = std::numeric_limits<int64_t>::max();  // behind every window
  const uint64_t before = test::thread_allocations();
  for (int i = 0; i < 10'000; ++i) {
    record.step = engine.num_steps() + i;
    collector.consume(record);
    collector.consume_stamps(1, record.step, record.stamps);
  }
  EXPECT_EQ(test::thread_allocations(), before);
}

}  // namespace
}  // namespace minfer
