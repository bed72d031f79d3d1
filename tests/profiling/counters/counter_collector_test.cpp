#include "profiling/counters/counter_collector.h"

#include <atomic>
#include <mutex>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/allocations.h"
#include "tests/support/wait.h"

namespace minfer {
namespace {

constexpr double kBytesANanosecond = 2'000.0;

/// A device that reads evenly, on the host's clock.
class FakeSampler final : public CounterSampler {
 public:
  std::string prepare(const CounterOptions& options) override {
    ++prepared;
    setup_ = {.interval_ns = options.interval_ns, .counters = {Counter::dram_read_bytes}, .left_out = {}};
    return prepare_error;
  }
  const CounterSetup& setup() const override { return setup_; }
  std::string begin_window() override {
    begin_ns_ = now_ns();
    begins_ns.push_back(begin_ns_);
    return std::ssize(begins_ns) > good_windows ? "the begin failed" : "";
  }
  std::string end_window() override {
    end_ns_ = now_ns();
    return {};
  }
  std::string drain(CounterSamples& out) override {
    out.counters = setup_.counters;
    for (int64_t at = begin_ns_; at + setup_.interval_ns <= end_ns_; at += setup_.interval_ns) {
      out.begin_ns.push_back(at);
      out.end_ns.push_back(at + setup_.interval_ns);
      out.values.push_back(kBytesANanosecond * static_cast<double>(setup_.interval_ns));
    }
    return {};
  }
  void close() noexcept override { ++closed; }

  std::string prepare_error;
  int64_t good_windows = 1'000'000;
  std::atomic<int> prepared{0};
  std::atomic<int> closed{0};
  std::vector<int64_t> begins_ns;  ///< read when the collector is gone

 private:
  CounterSetup setup_;
  int64_t begin_ns_ = 0;
  int64_t end_ns_ = 0;
};

/// What the collector gave, from its thread.
class WindowList {
 public:
  CounterCollector::OnWindow sink() {
    return [this](const CounterWindow& window) {
      const std::lock_guard lock(mutex_);
      windows_.push_back(window);
    };
  }
  std::vector<CounterWindow> all() const {
    const std::lock_guard lock(mutex_);
    return windows_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<CounterWindow> windows_;
};

std::vector<OpInfo> two_ops() {
  return {OpInfo{.name = "first", .weight_bytes = 1'000}, OpInfo{.name = "second", .weight_bytes = 2'000}};
}

/// Runs steps of two ops in real time, as the engine's thread would.
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

/// Steps until `holds()`; false: it never does.
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
    CounterCollector collector(&sampler, two_ops(), {.window = std::chrono::milliseconds(5)}, windows.sink());
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
      // Idle time around a step reads as much here: its first and last sample count whole.
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
    CounterCollector collector(nullptr, two_ops(), {}, windows.sink());
    FakeEngine().step(collector);
  }
  ASSERT_EQ(windows.all().size(), 1u);
  EXPECT_NE(windows.all()[0].error.find("has none"), std::string::npos);

  FakeSampler sampler;
  sampler.prepare_error = "refused (35)";
  {
    CounterCollector collector(&sampler, two_ops(), {}, windows.sink());
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
    CounterCollector collector(&sampler, two_ops(), {.window = std::chrono::milliseconds(2)}, windows.sink());
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
    CounterCollector collector(&sampler, two_ops(), {.window = std::chrono::milliseconds(1)}, windows.sink());
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
    CounterCollector collector(&sampler, two_ops(),
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
        &sampler, two_ops(), {.window = std::chrono::milliseconds(1), .every = std::chrono::milliseconds(40)},
        windows.sink());
    EXPECT_TRUE(step_until(engine, collector, [&] { return windows.all().size() >= 3; }));
  }
  for (size_t i = 1; i < sampler.begins_ns.size(); ++i)
    EXPECT_GE(sampler.begins_ns[i] - sampler.begins_ns[i - 1], 39'000'000);
}

TEST(CounterCollector, TheEnginesThreadAllocatesNothing) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer has its own operator new";
  FakeSampler sampler;
  WindowList windows;
  FakeEngine engine;
  CounterCollector collector(&sampler, two_ops(), {.window = std::chrono::milliseconds(2)}, windows.sink());
  ASSERT_TRUE(step_until(engine, collector, [&] { return !windows.all().empty(); }));
  StepRecord record;
  reserve_stamps(record, 2);
  record.stamps.ops = {{.op = 0, .begin_ns = 0}, {.op = 1, .begin_ns = 10}};
  record.end_ns = std::numeric_limits<int64_t>::max();  // of every window
  const uint64_t before = test::thread_allocations();
  for (int i = 0; i < 10'000; ++i) {
    record.step = engine.num_steps() + i;
    collector.consume(record);
  }
  EXPECT_EQ(test::thread_allocations(), before);
}

}  // namespace
}  // namespace minfer
