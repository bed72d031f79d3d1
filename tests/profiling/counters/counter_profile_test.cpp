// Samples of a made-up device over the records of the steps that it ran.
#include "profiling/counters/counter_profile.h"

#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/profiling/counter_timeline.h"

namespace minfer {
namespace {

using test::run_timeline;
using test::Timeline;
using test::TimelineOp;
using test::TimelineOptions;

constexpr int64_t kOffsetNs = 123'456'789;

/// Two layers of two ops, and one op behind them. By op_work() each reads its weights and activations.
std::vector<OpInfo> two_layers() {
  const auto linear = [](const char* op, int32_t layer, int64_t bytes) {
    return OpInfo{.name = op, .layer = layer, .weight_bytes = bytes};
  };
  return {linear("qkv", 0, 8'000'000), linear("gate_up", 0, 60'000'000), linear("qkv", 1, 8'000'000),
          linear("gate_up", 1, 60'000'000), linear("lm_head", -1, 300'000'000)};
}

/// The ops read a tenth more than is counted, at 3 TB/s.
std::vector<TimelineOp> timeline_ops() {
  std::vector<TimelineOp> ops;
  for (const OpInfo& info : two_layers()) {
    const double bytes = static_cast<double>(info.weight_bytes) * 1.1;
    ops.push_back({bytes / 3e6, bytes, info.layer >= 0 ? 0.5 : 0.9});
  }
  return ops;
}

std::vector<StepRecord> records_of(const Timeline& line, int32_t graph_batch = 4, int64_t first_step = 0) {
  std::vector<StepRecord> records;
  for (const StepSpans& spans : line.steps) {
    StepRecord& record = records.emplace_back();
    record.step = first_step + spans.step;
    record.batch.graph_batch = graph_batch;
    record.batch.shape.decode_tokens = record.batch.shape.decode_sequences = 4;
    for (size_t i = 0; i + 1 < spans.bounds_ns.size(); ++i)
      record.stamps.ops.push_back({.op = static_cast<OpId>(i), .begin_ns = spans.bounds_ns[i] + kOffsetNs});
    record.stamps.end_ns = spans.end_ns() + kOffsetNs;
    record.stamps.clock_offset_ns = kOffsetNs;
  }
  return records;
}

CounterSetup setup_of(const Timeline& line) {
  return {.interval_ns = 1'000,
          .counters = line.samples.counters,
          .left_out = {{Counter::nvlink_sent_bytes, "no link"}}};
}

TEST(CounterProfile, GivesOpsSummedOverLayersAndSteps) {
  std::mt19937 random(1);
  const Timeline line = run_timeline(timeline_ops(), {.num_steps = 12, .idle_us = 10.0}, random);
  CounterProfile profile(two_layers());
  const CounterWindow window = profile.add(line.samples, records_of(line), setup_of(line));

  EXPECT_EQ(window.error, "");
  EXPECT_EQ(window.samples, std::ssize(line.samples.begin_ns));
  EXPECT_EQ(window.begin_ns, line.samples.begin_ns.front() + kOffsetNs);
  EXPECT_LE(std::abs(window.clock_shift_ns), 50);
  ASSERT_EQ(window.left_out.size(), 1u);
  ASSERT_EQ(window.work.size(), 1u);
  const CounterWork& work = window.work[0];
  EXPECT_EQ(work.phase, StepPhase::decode);
  EXPECT_EQ(work.graph_batch, 4);
  EXPECT_EQ(work.steps, 12);
  EXPECT_EQ(work.replays, 12);
  ASSERT_EQ(work.ops.size(), 3u);
  const int32_t calls[] = {2, 2, 1};
  const double weights[] = {16e6, 120e6, 300e6};
  for (size_t i = 0; i < 3; ++i) {
    const CounterOp& op = work.ops[i];
    EXPECT_EQ(op.op, two_layers()[i == 2 ? 4 : i].name);
    EXPECT_EQ(op.calls, calls[i]);
    EXPECT_NEAR(op.measured[Counter::dram_read_bytes] / (weights[i] * 1.1), 1.0, 0.005);
    EXPECT_NEAR(op.counted_read_bytes / weights[i], 1.0, 0.001);
    EXPECT_NEAR(op.read_gbps(), 3'000.0, 60.0);
    EXPECT_NEAR(op.measured[Counter::sm_active], i == 2 ? 0.9 : 0.5, 0.01);
    EXPECT_LT(op.read_error_bytes, weights[i] * 0.01);
    EXPECT_FALSE(op.measured.has(Counter::tensor_active));
  }

  // The first begins before the first whole sample.
  ASSERT_GE(window.steps.size(), 11u);
  for (const CounterStep& step : window.steps) {
    EXPECT_NEAR(step.measured[Counter::dram_read_bytes] / (436e6 * 1.1), 1.0, 0.005);
    EXPECT_NEAR(static_cast<double>(step.counted_read_bytes) / 436e6, 1.0, 0.001);
    EXPECT_NEAR(step.covered, 1.0, 1e-9);
    EXPECT_GT(step.us, 100.0);
  }
}

TEST(CounterProfile, EstimatesRestOnTheLastWindows) {
  std::mt19937 random(2);
  CounterProfile profile(two_layers());
  for (int i = 0; i < 12; ++i) {
    const Timeline line =
        run_timeline(timeline_ops(), {.num_steps = 3, .begin_ns = 1'000'000'000 + i * 50'000'000}, random);
    const CounterWindow window = profile.add(line.samples, records_of(line, 4, i * 3), setup_of(line));
    ASSERT_EQ(window.work.size(), 1u);
    EXPECT_EQ(window.work[0].steps, 3);
    EXPECT_EQ(window.work[0].replays, std::min(i + 1, 8) * 3);
    // Two layers of a gate_up of 22 us, three steps, one sample each microsecond: only from this window.
    EXPECT_NEAR(static_cast<double>(window.work[0].ops[1].samples), 6.0 * 23.0, 12.0);
    EXPECT_EQ(window.left_out.empty(), i > 0);
    EXPECT_NEAR(window.work[0].ops[0].measured[Counter::dram_read_bytes] / 17.6e6, 1.0, 0.02);
  }
}

TEST(CounterProfile, WhatHadNoSampleIsNotSampledInsteadOfZero) {
  std::mt19937 random(4);
  CounterProfile profile(two_layers());
  Timeline line = run_timeline(timeline_ops(), {.num_steps = 3}, random);
  const std::vector<StepRecord> records = records_of(line);
  // The first sample begins before the step and the second lies in its first op; all others are lost.
  line.samples.begin_ns.resize(2);
  line.samples.end_ns.resize(2);
  line.samples.values.resize(2 * line.samples.counters.size());
  const CounterWindow window = profile.add(line.samples, records, setup_of(line));
  ASSERT_EQ(window.work.size(), 1u);
  const std::vector<CounterOp>& ops = window.work[0].ops;
  EXPECT_EQ(ops[0].samples, 1);
  EXPECT_TRUE(ops[0].measured.has(Counter::dram_read_bytes));
  EXPECT_EQ(ops[2].samples, 0);
  EXPECT_FALSE(ops[2].measured.has(Counter::dram_read_bytes));
  EXPECT_FALSE(ops[2].measured.has(Counter::sm_active));
}

TEST(CounterProfile, AStepOfWhichACounterHasNoValueHasNone) {
  std::mt19937 random(5);
  CounterProfile profile(two_layers());
  Timeline line = run_timeline(timeline_ops(), {.num_steps = 3}, random);
  for (size_t i = 0; i < line.samples.values.size(); i += line.samples.counters.size())
    line.samples.values[i] = std::nan("");
  const CounterWindow window = profile.add(line.samples, records_of(line), setup_of(line));
  ASSERT_FALSE(window.steps.empty());
  EXPECT_FALSE(window.steps[0].measured.has(Counter::dram_read_bytes));
}

TEST(CounterProfile, KeepsWorkApart) {
  std::mt19937 random(3);
  CounterProfile profile(two_layers());
  Timeline line = run_timeline(timeline_ops(), {}, random);
  std::vector<StepRecord> records = records_of(line);
  for (size_t i = 0; i < records.size(); i += 3)
    records[i].batch.graph_batch = 8;
  records[1].batch.graph_batch = 0;
  records[1].batch.shape.prefill_tokens = 100;
  const CounterWindow window = profile.add(line.samples, records, setup_of(line));
  ASSERT_EQ(window.work.size(), 3u);
  EXPECT_EQ(window.work[0].graph_batch, 0);
  EXPECT_EQ(window.work[0].phase, StepPhase::mixed);
  EXPECT_EQ(window.work[0].ops[0].phase, StepPhase::mixed);
  EXPECT_TRUE(std::isinf(window.work[0].ops[0].read_error_bytes) ||
              std::isnan(window.work[0].ops[0].read_error_bytes));
  EXPECT_EQ(window.work[1].graph_batch, 4);
  EXPECT_EQ(window.work[2].graph_batch, 8);
  EXPECT_EQ(window.work[2].steps, 4);
}

TEST(CounterProfile, MovesSamplesOfAFittedClock) {
  std::mt19937 random(4);
  Timeline line = run_timeline(timeline_ops(), {.idle_us = 10.0, .clock_ns = 7'000}, random);
  line.samples.clock = SampleClock::fitted;
  CounterProfile profile(two_layers());
  const CounterWindow window = profile.add(line.samples, records_of(line), setup_of(line));
  EXPECT_EQ(window.clock, SampleClock::fitted);
  EXPECT_LE(std::abs(window.clock_shift_ns + 7'000), 100);
  EXPECT_NEAR(window.work[0].ops[0].measured[Counter::dram_read_bytes] / 17.6e6, 1.0, 0.02);
}

TEST(CounterProfile, StepsWithoutRecordsAreTimeOfWhichNothingIsKnown) {
  std::mt19937 random(5);
  Timeline line = run_timeline(timeline_ops(), {}, random);
  std::vector<StepRecord> records = records_of(line);
  records.erase(records.begin() + 4, records.begin() + 6);
  records[0].stamps.ops[1].op = 77;  // an unknown op
  CounterProfile profile(two_layers());
  const CounterWindow window = profile.add(line.samples, records, setup_of(line));
  ASSERT_EQ(window.work.size(), 2u);
  EXPECT_EQ(window.work[0].replays + window.work[1].replays, 10);
  for (const CounterStep& step : window.steps)
    EXPECT_NEAR(step.measured[Counter::dram_read_bytes] / (436e6 * 1.1), 1.0, 0.01);

  CounterProfile empty(two_layers());
  line.samples.asked_ns = 5'000'000;
  line.samples.start_ms = 2.0;
  const CounterWindow nothing = empty.add(line.samples, {}, setup_of(line));
  EXPECT_EQ(nothing.begin_ns, 7'000'000)
      << "of the host's clock, though no step tells how the device's lies to it";
  EXPECT_TRUE(nothing.work.empty());
  EXPECT_TRUE(nothing.steps.empty());
  EXPECT_GT(nothing.us, 0.0);
  EXPECT_TRUE(empty.add({}, {}, {}).counters.empty());
}

}  // namespace
}  // namespace minfer
