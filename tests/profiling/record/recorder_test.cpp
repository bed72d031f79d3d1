#include "profiling/record/recorder.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

#include "tests/support/allocations.h"

namespace minfer {
namespace {

constexpr size_t kOps = 72;

class CopyingSink final : public StepSink {
 public:
  void consume(const StepRecord& record) noexcept override {
    steps.push_back(record.step);
    requests = record.requests.size();
  }
  std::vector<int64_t> steps;
  size_t requests = 0;
};

void record_step(StepRecorder& recorder, size_t ops = kOps) {
  recorder.begin_step();
  recorder.set_batch({});
  {
    const SpanTimer span(recorder, HostSpan::launch);
    if (StepStamps* stamps = recorder.stamps()) {
      for (size_t op = 0; op < ops; ++op)
        stamps->ops.push_back({.op = static_cast<OpId>(op), .begin_ns = now_ns()});
      stamps->end_ns = now_ns();
    }
  }
  recorder.end_step();
}

void spin(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
  }
}

// Clock readings inside and outside of each span bound the recorded times, however long a line takes.
TEST(StepRecorder, SpansAndOpsCoverTheWallTime) {
  StepRecorder recorder({.num_ops = 2});
  const int64_t before = now_ns();
  recorder.begin_step();
  int64_t in_schedule = 0, in_launch = 0, launch_end = 0;
  const int64_t before_schedule = now_ns();
  {
    const SpanTimer span(recorder, HostSpan::schedule);
    in_schedule = now_ns();
    spin(std::chrono::microseconds(300));
    in_schedule = now_ns() - in_schedule;
  }
  const int64_t before_launch = now_ns();
  {
    const SpanTimer span(recorder, HostSpan::launch);
    in_launch = now_ns();
    spin(std::chrono::microseconds(200));  // before the first op
    recorder.stamps()->ops.push_back({.op = 0, .begin_ns = now_ns()});
    spin(std::chrono::microseconds(400));
    recorder.stamps()->ops.push_back({.op = 1, .begin_ns = now_ns()});
    spin(std::chrono::microseconds(400));
    recorder.stamps()->end_ns = now_ns();
    launch_end = now_ns();
  }
  const int64_t after_launch = now_ns();
  recorder.end_step();
  const int64_t after = now_ns();

  const StepRecord record = recorder.after(-1).back();
  const int64_t launch = record.host_ns[static_cast<size_t>(HostSpan::launch)];
  const int64_t schedule = record.host_ns[static_cast<size_t>(HostSpan::schedule)];
  const int64_t device = record.stamps.end_ns - record.stamps.ops[0].begin_ns;
  EXPECT_GE(device, 800'000);
  EXPECT_GE(schedule, in_schedule);
  EXPECT_LE(schedule, before_launch - before_schedule);
  EXPECT_GE(launch, launch_end - in_launch - device);
  EXPECT_LE(launch, after_launch - before_launch - device);  // the ops' time is not in it
  const int64_t covered = schedule + launch + device;
  EXPECT_LE(covered, record.wall_ns());
  EXPECT_GE(record.wall_ns(), after_launch - before_schedule);
  EXPECT_LE(record.wall_ns(), after - before);
}

TEST(StepRecorder, ASpanInsideAnotherIsTakenFromIt) {
  StepRecorder recorder({.num_ops = 2});
  recorder.begin_step();
  int64_t in_mask = 0, in_commit = 0;
  {
    const SpanTimer commit(recorder, HostSpan::commit);
    spin(std::chrono::microseconds(100));
    const int64_t begin = now_ns();
    {
      const SpanTimer mask(recorder, HostSpan::mask, HostSpan::commit);
      const int64_t inside = now_ns();
      spin(std::chrono::microseconds(300));
      in_mask = now_ns() - inside;
    }
    in_commit = now_ns() - begin;
  }
  const int64_t end = now_ns();
  recorder.add_forced_tokens(3);
  recorder.add_forced_tokens(4);
  recorder.end_step();
  const StepRecord record = recorder.after(-1).back();
  const int64_t mask = record.host_ns[static_cast<size_t>(HostSpan::mask)];
  const int64_t commit = record.host_ns[static_cast<size_t>(HostSpan::commit)];
  EXPECT_GE(mask, in_mask);
  EXPECT_LE(mask, in_commit);
  EXPECT_GE(commit, 100'000);
  EXPECT_LE(mask + commit, end - record.start_ns);
  EXPECT_EQ(record.batch.forced_tokens, 7);
}

TEST(StepRecorder, RingKeepsTheNewest) {
  StepRecorder recorder({.num_ops = kOps, .ring_bytes = 1});  // the least: 16
  ASSERT_EQ(recorder.capacity(), 16u);
  for (int i = 0; i < 37; ++i)
    record_step(recorder);
  const std::vector<StepRecord> all = recorder.after(-1);
  ASSERT_EQ(all.size(), 16u);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].step, static_cast<int64_t>(21 + i));
    EXPECT_EQ(all[i].stamps.ops.size(), kOps);
  }
  const std::vector<StepRecord> two = recorder.after(34);
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[1].step, 36);
  EXPECT_EQ(recorder.dropped(), 0u);
}

TEST(StepRecorder, GivesWhatCameAfterAStep) {
  StepRecorder recorder({.num_ops = kOps, .ring_bytes = 1});
  EXPECT_TRUE(recorder.after(-1).empty());
  const auto steps_after = [&](int64_t step) {
    std::vector<int64_t> steps;
    for (const StepRecord& record : recorder.after(step))
      steps.push_back(record.step);
    return steps;
  };
  for (int i = 0; i < 3; ++i)
    record_step(recorder);
  EXPECT_EQ(steps_after(-1), (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(steps_after(1), (std::vector<int64_t>{2}));
  EXPECT_TRUE(steps_after(2).empty());
  EXPECT_TRUE(steps_after(99).empty());
  recorder.set_enabled(false);  // a step that is not in the ring
  record_step(recorder);        // 3
  recorder.set_enabled(true);
  for (int i = 0; i < 17; ++i)
    record_step(recorder);  // 4 to 20: the ring holds 5 to 20
  EXPECT_EQ(steps_after(-1).size(), 16u);
  EXPECT_EQ(steps_after(3).front(), 5);
  EXPECT_EQ(steps_after(18), (std::vector<int64_t>{19, 20}));
}

TEST(StepRecorder, RingStaysWithinItsMemory) {
  const StepRecorder recorder({.num_ops = 300, .ring_bytes = 16u << 20});
  EXPECT_LE(recorder.capacity() * record_bytes(300), 16u << 20);
  EXPECT_GT(recorder.capacity(), 1000u);
  EXPECT_EQ(StepRecorder({.num_ops = 1, .ring_bytes = 1u << 30}).capacity(), 4096u);
}

TEST(StepRecorder, NumbersStepsWhetherRecordedOrNot) {
  StepRecorder recorder({.num_ops = kOps});
  record_step(recorder);  // 0
  recorder.set_enabled(false);
  recorder.begin_step();
  EXPECT_FALSE(recorder.recording());
  EXPECT_EQ(recorder.stamps(), nullptr);
  EXPECT_FALSE(recorder.wants_requests());
  recorder.end_step();  // 1
  recorder.set_enabled(true);
  recorder.begin_step();
  recorder.cancel_step();
  record_step(recorder);  // 2
  const std::vector<StepRecord> records = recorder.after(-1);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].step, 0);
  EXPECT_EQ(records[1].step, 2);
  recorder.reset();
  EXPECT_TRUE(recorder.after(-1).empty());
  record_step(recorder);
  EXPECT_EQ(recorder.after(-1).at(0).step, 0);
}

TEST(StepRecorder, RequestIdsReachTheSinkOnly) {
  StepRecorder recorder({.num_ops = kOps});
  CopyingSink sink;
  recorder.begin_step();
  EXPECT_FALSE(recorder.wants_requests());
  recorder.end_step();
  recorder.add_sink(sink);
  recorder.begin_step();
  EXPECT_TRUE(recorder.wants_requests());
  recorder.add_request("cmpl-0123456789abcdef0123456789abcdef");
  recorder.add_request("");
  recorder.end_step();
  EXPECT_EQ(sink.steps, std::vector<int64_t>{1});
  EXPECT_EQ(sink.requests, 2u);
  EXPECT_TRUE(recorder.after(-1).back().requests.empty());
}

TEST(StepRecorder, RecordingAllocatesNothing) {
  if (!test::counts_allocations()) GTEST_SKIP() << "a sanitizer counts the allocations";
  StepRecorder recorder({.num_ops = kOps, .ring_bytes = 1});
  record_step(recorder);
  const uint64_t before = test::thread_allocations();
  for (int i = 0; i < 100; ++i)
    record_step(recorder);
  EXPECT_EQ(test::thread_allocations(), before);
  record_step(recorder, kOps + 1);  // the control: more ops than reserved does allocate
  EXPECT_GT(test::thread_allocations(), before);
}

// A reader that is stopped while it takes a value still gets the newest value afterwards.
TEST(LatestValue, TheNewestIsNeverLostToAReader) {
  LatestValue<int> latest;
  EXPECT_EQ(latest.take(), nullptr);
  const auto publish = [&](int value) {
    latest.writers() = value;
    return latest.publish();
  };
  EXPECT_FALSE(publish(1));
  const int* held = latest.take();
  ASSERT_NE(held, nullptr);
  EXPECT_FALSE(publish(2)) << "what the reader has taken is not replaced";
  EXPECT_TRUE(publish(3));
  EXPECT_TRUE(publish(4));
  EXPECT_EQ(*held, 1) << "written while the reader reads it";
  held = latest.take();
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(*held, 4);
  EXPECT_EQ(latest.take(), nullptr);
}

TEST(StepRecorder, ReadersNeverSeeHalfARecordAndDropsAreCounted) {
  constexpr size_t kSteps =
      3'900;  // fewer than the ring holds, so that every step is either in it or dropped
  StepRecorder recorder({.num_ops = kOps});
  ASSERT_GT(recorder.capacity(), kSteps);
  std::jthread reader([&](const std::stop_token& stop) {
    int64_t previous = -1;
    while (!stop.stop_requested()) {
      for (const StepRecord& record : recorder.after(previous)) {
        ASSERT_GT(record.step, previous);
        ASSERT_EQ(record.stamps.ops.size(), kOps);
        ASSERT_GE(record.end_ns, record.stamps.end_ns);
        previous = record.step;
      }
    }
  });
  CopyingSink sink;
  recorder.add_sink(sink);
  for (size_t i = 0; i < kSteps; ++i)
    record_step(recorder);
  reader.request_stop();
  reader.join();
  EXPECT_EQ(sink.steps.size(), kSteps);  // only the ring drops steps
  EXPECT_EQ(recorder.after(-1).size() + recorder.dropped(), kSteps);
  EXPECT_EQ(recorder.after(-1).back().step, int64_t{kSteps} - 1)
      << "a reader that waits for the newest step gets it";
}

}  // namespace
}  // namespace minfer
