#include "profiling/summary/summary.h"

#include <gtest/gtest.h>

#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

using test::sample_ops;
using test::sample_record;

constexpr Ceilings kCeilings{20.0, 200.0};
constexpr Ceilings kFp8Ceilings{20.0, 200.0, 400.0};
constexpr OpId kQkv = 1, kLmHead = 9, kSample = 10;  // of sample_ops()

const OpSummary& op_of(const StepSummary& step, std::string_view op) {
  const auto found =
      std::find_if(step.ops.begin(), step.ops.end(), [&](const OpSummary& row) { return row.op == op; });
  if (found == step.ops.end()) throw std::out_of_range(std::string(op));
  return *found;
}

constexpr UnitShares kAllFp8{.fp8 = 1.0};

TEST(Ceilings, RooflineByHand) {
  EXPECT_DOUBLE_EQ(kCeilings.floor_us(20'000, 100, {}), 1.0);  // memory: 20 kB at 20 GB/s
  EXPECT_DOUBLE_EQ(kCeilings.floor_us(20, 400'000, {}), 2.0);  // compute: 400 kFLOP at 200 GFLOP/s
  EXPECT_TRUE(kCeilings.compute_bound(100, 1'001, {}));        // the ridge is at 10 FLOP a byte
  EXPECT_FALSE(kCeilings.compute_bound(100, 999, {}));
  EXPECT_DOUBLE_EQ(Ceilings{}.floor_us(20'000, 100, {}), 0.0);
  EXPECT_FALSE((Ceilings{0.0, 1.0}.compute_bound(1, 1'000, {})));
}

TEST(Ceilings, RooflineOfFp8ProductsByHand) {
  EXPECT_DOUBLE_EQ(kFp8Ceilings.gflops_of({}), 200.0);
  EXPECT_DOUBLE_EQ(kFp8Ceilings.gflops_of(kAllFp8), 400.0);
  EXPECT_DOUBLE_EQ(kFp8Ceilings.gflops_of({.fp8 = 0.5}),
                   2.0 / (1.0 / 200.0 + 1.0 / 400.0));  // half of the work at each
  EXPECT_DOUBLE_EQ(kCeilings.gflops_of(kAllFp8), 200.0) << "not measured";
  EXPECT_DOUBLE_EQ(kFp8Ceilings.floor_us(20, 400'000, kAllFp8), 1.0);
  EXPECT_DOUBLE_EQ(kFp8Ceilings.floor_us(20'000, 100, kAllFp8), 1.0);  // memory as before
  EXPECT_TRUE(kFp8Ceilings.compute_bound(100, 1'001, {}));
  EXPECT_FALSE(kFp8Ceilings.compute_bound(100, 1'999, kAllFp8));  // the ridge is at 20 FLOP a byte
  EXPECT_TRUE(kFp8Ceilings.compute_bound(100, 2'001, kAllFp8));
  EXPECT_TRUE(kCeilings.compute_bound(100, 1'999, kAllFp8));
}

TEST(Ceilings, WhatIsNoProductIsHeldAgainstF32) {
  constexpr Ceilings kGpu{.read_gbps = 20.0, .gflops = 800.0, .fp8_gflops = 1'600.0, .vector_gflops = 50.0};
  EXPECT_DOUBLE_EQ(kGpu.gflops_of({.vectors = 1.0}), 50.0);
  EXPECT_DOUBLE_EQ(kGpu.gflops_of({.fp8 = 0.5, .vectors = 0.25}),
                   1.0 / (0.5 / 1'600.0 + 0.25 / 50.0 + 0.25 / 800.0));
  EXPECT_DOUBLE_EQ(kCeilings.gflops_of({.vectors = 1.0}), 200.0) << "a CPU multiplies everything in f32";
  for (const OpInfo& op : sample_ops()) {
    const bool is_product = op.kind != OpKind::embed && op.kind != OpKind::sample;
    EXPECT_EQ(units_of(op).vectors, is_product ? 0.0 : 1.0) << op.name;
    EXPECT_EQ(units_of(op).fp8, 0.0) << op.name;
  }
}

/// Returns whether steps in which each op takes `us` show that the ceilings are too low.
bool beats(const Ceilings& ceilings, int64_t us, int steps = 3) {
  StepSummariser summariser(sample_ops(), ceilings, ProfileDetail::op);
  for (int64_t i = 0; i < steps; ++i) {
    StepRecord record = sample_record(i, 4, 0);
    for (size_t op = 1; op < record.stamps.ops.size(); ++op)
      record.stamps.ops[op].begin_ns = record.stamps.ops[op - 1].begin_ns + us * 1'000;
    record.stamps.end_ns = record.stamps.ops.back().begin_ns + us * 1'000;
    summariser.summarise(record);
  }
  return summariser.beats_ceilings();
}

TEST(Summary, TellsCeilingsThatWereMeasuredTooLow) {
  // qkv does 4 x 2 x 256 x 384 operations a layer, which take 786 us at 1 GFLOP/s.
  constexpr Ceilings kSlow{.read_gbps = 1e6, .gflops = 1.0};
  EXPECT_TRUE(beats(kSlow, 700));
  EXPECT_FALSE(beats(kSlow, 20'000));
  EXPECT_FALSE(beats(kSlow, 700, 2)) << "two steps may be a clock's error";
  EXPECT_FALSE(beats({.read_gbps = 1e6, .gflops = 1e-5}, 100)) << "so may less than a millisecond";
  EXPECT_FALSE(beats({.read_gbps = 1e-6, .gflops = 1e6}, 700)) << "a cache may hold what is read";
  EXPECT_FALSE(beats({}, 700));
}

TEST(Summary, TimesOfADecodeStepByHand) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::op);
  const StepSummary step = summariser.summarise(sample_record(7, 4, 0));
  // Ops 3 and 7, prefill attention, do not run: 1+2+3+5+6+7+9+10+11 us.
  EXPECT_DOUBLE_EQ(step.gpu_us, 54.0);
  EXPECT_DOUBLE_EQ(step.wall_us, 5.0 + 54.0 + 4.0);
  EXPECT_DOUBLE_EQ(step.gpu_idle_us, 9.0);
  EXPECT_DOUBLE_EQ(step.attributed, (5.0 + 54.0 + 3.0) / 63.0);
  EXPECT_EQ(step.phase(), StepPhase::decode);
  EXPECT_DOUBLE_EQ(step.decode.us, 54.0);
  EXPECT_EQ(step.decode.tokens, 4);
  EXPECT_DOUBLE_EQ(step.prefill.us, 0.0);
  ASSERT_EQ(step.ops.size(), 6u);
  EXPECT_EQ(step.ops[0].op, "embed");  // in the order they run
  EXPECT_TRUE(step.layers.empty());
  EXPECT_EQ(step.requests, std::vector<std::string>{"request-0"});
}

TEST(Summary, OpsOfOneNameAddUp) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::op);
  const StepRecord record = sample_record(0, 4, 0);
  const StepSummary step = summariser.summarise(record);
  const OpSummary& qkv = op_of(step, "qkv");
  const KernelWork work = op_work(sample_ops()[kQkv], record.batch.shape);
  EXPECT_EQ(qkv.calls, 2);
  EXPECT_DOUBLE_EQ(qkv.us, 2.0 + 6.0);
  EXPECT_EQ(qkv.bytes, 2 * work.bytes());
  EXPECT_EQ(qkv.flops, 2 * work.flops);
  EXPECT_DOUBLE_EQ(qkv.gbps(), static_cast<double>(qkv.bytes) / 8e3);
  EXPECT_DOUBLE_EQ(qkv.tflops(), static_cast<double>(qkv.flops) / 8e6);
  EXPECT_DOUBLE_EQ(qkv.roofline(), static_cast<double>(qkv.bytes) / 20e3 / 8.0);
  EXPECT_EQ(qkv.bound, Bound::memory);
  EXPECT_EQ(qkv.phase, StepPhase::decode);
}

TEST(Summary, EachOpIsHeldAgainstItsOwnCeiling) {
  constexpr Ceilings kMuchBandwidth{1e6, 200.0, 400.0};
  std::vector<OpInfo> ops = sample_ops();
  const StepRecord record = sample_record(0, 4, 0);
  const auto qkv_of = [&](const Ceilings& ceilings) {
    return op_of(StepSummariser(ops, ceilings, ProfileDetail::op).summarise(record), "qkv");
  };
  const OpSummary bf16 = qkv_of(kMuchBandwidth);
  EXPECT_EQ(bf16.bound, Bound::compute);
  EXPECT_DOUBLE_EQ(bf16.floor_us, static_cast<double>(bf16.flops) / 200e3);
  ops[kQkv].fp8_products = true;  // only of the first layer
  EXPECT_DOUBLE_EQ(qkv_of(kMuchBandwidth).floor_us, 0.75 * bf16.floor_us);
  ops[kQkv + 4].fp8_products = true;
  EXPECT_DOUBLE_EQ(qkv_of(kMuchBandwidth).floor_us, 0.5 * bf16.floor_us);
  EXPECT_DOUBLE_EQ(qkv_of({1e6, 200.0}).floor_us, bf16.floor_us) << "not measured";
  // On bf16 tensor cores the arithmetic takes 1.5 times as long as the memory, so less than it on FP8's.
  const double read_gbps = 1.5 * 200.0 * static_cast<double>(bf16.bytes) / static_cast<double>(bf16.flops);
  EXPECT_EQ(qkv_of({read_gbps, 200.0, 400.0}).bound, Bound::memory);
  EXPECT_EQ(qkv_of({read_gbps, 200.0}).bound, Bound::compute);
}

TEST(Summary, AnOpThatRunsInSlicesDoesItsWorkOnce) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::op);
  StepRecord record = sample_record(0, 4, 0);
  const OpSummary whole = op_of(summariser.summarise(record), "lm_head");
  const int64_t end_ns = record.stamps.end_ns;
  for (const OpId op : {kLmHead, kSample, kLmHead})
    record.stamps.ops.push_back({.op = op, .begin_ns = end_ns});
  record.stamps.end_ns += 5'000;
  const StepSummary sliced = summariser.summarise(record);
  const OpSummary& lm_head = op_of(sliced, "lm_head");
  EXPECT_EQ(lm_head.calls, whole.calls + 2);
  EXPECT_DOUBLE_EQ(lm_head.us, whole.us + 5.0);
  EXPECT_EQ(lm_head.bytes, whole.bytes);
  EXPECT_EQ(lm_head.flops, whole.flops);
  EXPECT_DOUBLE_EQ(lm_head.floor_us, whole.floor_us);
}

TEST(Summary, PhasesOfAMixedStepAddUpToTheDeviceTime) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::layer);
  summariser.observe(sample_record(0, 4, 0));
  const StepSummary step = summariser.summarise(sample_record(1, 4, 32));
  EXPECT_EQ(step.phase(), StepPhase::mixed);
  EXPECT_NEAR(step.prefill.us + step.decode.us, step.gpu_us, 1e-9);
  EXPECT_GT(step.prefill.us, 0.0);
  EXPECT_GT(step.decode.us, 0.0);
  EXPECT_EQ(op_of(step, "attention_decode").phase, StepPhase::decode);
  EXPECT_EQ(op_of(step, "attention_prefill").phase, StepPhase::prefill);
  EXPECT_EQ(op_of(step, "qkv").phase, StepPhase::mixed);
  ASSERT_EQ(step.layers.size(), sample_ops().size());
  EXPECT_EQ(step.layers[5].layer, 1);
  EXPECT_EQ(step.layers[5].op, "qkv");
  EXPECT_DOUBLE_EQ(step.layers[5].us, 6.0);
}

TEST(Summary, WhatADeviceIdlesBetweenOpsIsNotTheirs) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::layer);
  const StepRecord record = test::sample_device_record(0, true);
  const auto num_ops = static_cast<double>(record.stamps.ops.size());
  const StepSummary step = summariser.summarise(record);
  EXPECT_EQ(step.attributed_by(), "end stamps");
  EXPECT_DOUBLE_EQ(step.gpu_us, 10.0 * num_ops);
  EXPECT_DOUBLE_EQ(step.idle_host_us, 10.0 * (num_ops - 1));
  EXPECT_DOUBLE_EQ(step.idle_device_us, 0.0);
  EXPECT_DOUBLE_EQ(step.wall_us, 10.0 + 20.0 * num_ops);  // the first op begins 20 us after the step
  EXPECT_DOUBLE_EQ(step.gpu_idle_us, step.wall_us - step.gpu_us);
  EXPECT_DOUBLE_EQ(step.attributed, step.gpu_us / step.wall_us)
      << "what the host does meanwhile runs no kernel";
  EXPECT_EQ(step.late_ops, std::ssize(record.stamps.ops) - 1);
  EXPECT_DOUBLE_EQ(op_of(step, "qkv").us, 20.0);
  EXPECT_DOUBLE_EQ(op_of(step, "qkv").idle_us, 20.0);
  EXPECT_EQ(op_of(step, "qkv").launches, (std::vector<int32_t>{0, 1}));
  // The lesson of the stamped ends applies to a later step without them.
  const StepSummary later = summariser.summarise(test::sample_device_record(1, false));
  EXPECT_EQ(later.attributed_by(), "launch times");
  EXPECT_DOUBLE_EQ(later.gpu_us, step.gpu_us);
  EXPECT_DOUBLE_EQ(later.idle_host_us, step.idle_host_us);
}

TEST(Summary, FewerLaunchesThanTheOpsCountAreTaken) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::op);
  StepRecord record = test::sample_device_record(0, true);
  record.stamps.launches.resize(1);
  const StepSummary step = summariser.summarise(record);
  EXPECT_EQ(step.ops[0].launches, std::vector<int32_t>{0});
  EXPECT_TRUE(step.ops[1].launches.empty());
}

TEST(Summary, UnknownOpsCountAsUnattributed) {
  StepSummariser summariser(sample_ops(), kCeilings, ProfileDetail::op);
  StepRecord record = sample_record(0, 4, 0);
  const StepSummary whole = summariser.summarise(record);
  record.stamps.ops.back().op = 99;
  record.stamps.ops.front().op = -1;
  const StepSummary step = summariser.summarise(record);
  EXPECT_DOUBLE_EQ(step.gpu_us, whole.gpu_us - 1.0 - 11.0);
  EXPECT_LT(step.attributed, whole.attributed);
}

TEST(Summary, WithoutCeilingsNoRoofline) {
  StepSummariser summariser(sample_ops(), {}, ProfileDetail::op);
  const StepSummary step = summariser.summarise(sample_record(0, 4, 0));
  EXPECT_EQ(op_of(step, "qkv").bound, Bound::unknown);
  EXPECT_DOUBLE_EQ(op_of(step, "qkv").roofline(), 0.0);
  EXPECT_GT(op_of(step, "qkv").gbps(), 0.0);
}

// The rule of kPhaseRule, case by case.
class PhaseRule : public testing::Test {
 protected:
  double decode_us(const BatchShape& shape, const Ceilings& ceilings) const {
    return decode_share_us(kQkv, ops[kQkv], 100.0, shape, ceilings, costs);
  }
  std::vector<OpInfo> ops = sample_ops();
  PhaseCosts costs{ops.size()};
  BatchShape mixed = sample_record(0, 4, 12).batch.shape;
  Ceilings memory_bound{1.0, 1e6};
  Ceilings compute_bound{1e6, 1.0};
};

TEST_F(PhaseRule, ComputeBoundIsSplitByTokens) {
  EXPECT_DOUBLE_EQ(decode_us(mixed, compute_bound), 25.0);
}

TEST_F(PhaseRule, WhatAnOpIsBoundByDependsOnItsOwnCeiling) {
  const KernelWork work = op_work(ops[kQkv], mixed);
  const double ridge = static_cast<double>(work.flops) / static_cast<double>(work.bytes());
  const Ceilings ceilings{1.0, ridge / 1.5, 2.0 * ridge / 1.5};
  costs.observe(kQkv, 4, 60.0);
  EXPECT_DOUBLE_EQ(decode_us(mixed, ceilings), 25.0);
  ops[kQkv].fp8_products = true;
  EXPECT_DOUBLE_EQ(decode_us(mixed, ceilings), 60.0);
}

TEST_F(PhaseRule, WithoutCeilingsSplitByTokens) {
  costs.observe(kQkv, 4, 60.0);
  EXPECT_DOUBLE_EQ(decode_us(mixed, {}), 25.0);
}

TEST_F(PhaseRule, MemoryBoundChargesDecodeWhatItTakesAlone) {
  costs.observe(kQkv, 4, 60.0);
  EXPECT_DOUBLE_EQ(decode_us(mixed, memory_bound), 60.0);
  EXPECT_DOUBLE_EQ(decode_us(mixed, compute_bound), 25.0);  // known costs do not touch compute-bound ops
}

TEST_F(PhaseRule, DecodeIsNeverChargedMoreThanTheOpTook) {
  costs.observe(kQkv, 4, 140.0);
  EXPECT_DOUBLE_EQ(decode_us(mixed, memory_bound), 100.0);
}

TEST_F(PhaseRule, MemoryBoundBeforeAnyDecodeStepUsesTheRoofline) {
  const BatchShape alone = sample_record(0, 4, 0).batch.shape;
  const auto all = static_cast<double>(op_work(ops[kQkv], mixed).bytes());
  const auto decode = static_cast<double>(op_work(ops[kQkv], alone).bytes());
  EXPECT_NEAR(decode_us(mixed, memory_bound), 100.0 * decode / all, 1e-9);
  EXPECT_GT(decode / all, 0.8);  // nearly all of it is the weights
}

TEST_F(PhaseRule, OpsOfOneKindCountWholly) {
  EXPECT_DOUBLE_EQ(decode_share_us(2, ops[2], 100.0, mixed, memory_bound, costs), 100.0);
  EXPECT_DOUBLE_EQ(decode_share_us(3, ops[3], 100.0, mixed, memory_bound, costs), 0.0);
}

TEST_F(PhaseRule, StepsOfOneKindCountWholly) {
  EXPECT_DOUBLE_EQ(decode_us(sample_record(0, 4, 0).batch.shape, memory_bound), 100.0);
  EXPECT_DOUBLE_EQ(decode_us(sample_record(0, 0, 12).batch.shape, memory_bound), 0.0);
}

TEST_F(PhaseRule, OpsOnLogitsAreSplitByLogitRows) {
  const OpId lm_head = 9;
  ASSERT_EQ(ops[lm_head].scope, TokenScope::logits);
  EXPECT_DOUBLE_EQ(decode_share_us(lm_head, ops[lm_head], 100.0, mixed, compute_bound, costs),
                   80.0);        // 4 rows and 1
  mixed.prefill_logit_rows = 0;  // the prompt goes on in the next step
  EXPECT_DOUBLE_EQ(decode_share_us(lm_head, ops[lm_head], 100.0, mixed, compute_bound, costs), 100.0);
}

TEST(PhaseCosts, RunningMeanByPowerOfTwo) {
  PhaseCosts costs(1);
  EXPECT_FALSE(costs.decode_us(0, 3));
  costs.observe(0, 3, 80.0);
  EXPECT_DOUBLE_EQ(costs.decode_us(0, 3).value(), 80.0);
  EXPECT_DOUBLE_EQ(costs.decode_us(0, 4).value(), 80.0);
  EXPECT_FALSE(costs.decode_us(0, 2));
  EXPECT_FALSE(costs.decode_us(0, 5));
  costs.observe(0, 4, 160.0);
  EXPECT_DOUBLE_EQ(costs.decode_us(0, 3).value(), 90.0);  // 80 + (160 - 80) / 8
  costs.observe(0, 1'000'000, 5.0);
  EXPECT_TRUE(costs.decode_us(0, 1'000'000));
}

}  // namespace
}  // namespace minfer
