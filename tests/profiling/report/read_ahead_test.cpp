#include "profiling/report/device/read_ahead.h"

#include <array>
#include <cmath>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiling/report/report.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

constexpr int32_t kPlain = 0, kAhead = 1;
constexpr double kReadGbps = 200.0;

std::vector<KernelLaunch> launches_of_which_one_reads_ahead() {
  std::vector<KernelLaunch> launches = test::sample_launches();
  launches[kAhead].reads_ahead_bytes = 1 << 16;
  return launches;
}

OpSummary op_that_took(std::string op, int32_t calls, double us, int64_t bytes, int32_t launch) {
  OpSummary summary;
  summary.op = std::move(op);
  summary.calls = calls;
  summary.us = us;
  summary.bytes = bytes;
  summary.floor_us = static_cast<double>(bytes) / kReadGbps * 1e-3;
  summary.bound = Bound::memory;
  summary.launches = {launch};
  return summary;
}

/// A decode step of the sample's two layers: attention is charged for the bytes that gate_up reads ahead.
StepSummary step_that_reads_ahead() {
  StepSummary step;
  step.batch.shape.decode_tokens = 4;
  step.wall_us = step.gpu_us = 60.0;
  step.ops = {op_that_took("embed", 1, 1.0, 2'000, kPlain),
              op_that_took("qkv", 2, 8.0, 400'000, kPlain),
              op_that_took("attention_decode", 2, 20.0, 200'000, kPlain),
              op_that_took("gate_up_swiglu", 2, 10.0, 3'800'000, kAhead),
              op_that_took("lm_head", 1, 20.0, 2'000'000, kPlain),
              op_that_took("sample", 1, 1.0, 1'000, kPlain)};
  return step;
}

std::vector<ReadAheadPair> read_ahead_pairs(std::span<const OpInfo> ops,
                                            std::span<const KernelLaunch> launches,
                                            std::span<const StepSummary> steps,
                                            std::optional<StepPhase> phase = std::nullopt) {
  ReadAheadSum sum({ops.begin(), ops.end()});
  for (const StepSummary& step : steps)
    sum.add(step, launches);
  return sum.pairs(phase);
}

ProfileFile file_that_reads_ahead() {
  ProfileFile file;
  file.header = test::sample_header();
  file.header.backend = "cuda";
  file.header.cache_bytes = 1'000'000;
  file.launches = launches_of_which_one_reads_ahead();
  file.steps = {step_that_reads_ahead(), step_that_reads_ahead()};
  return file;
}

TEST(ReadAhead, NeighboursAreThoseOfTheOpsThatRun) {
  const std::vector<std::string> running{"embed", "qkv", "attention_prefill", "gate_up_swiglu"};
  const std::vector<OpNeighbours> found = neighbours_of(test::sample_ops(), running);
  ASSERT_EQ(found.size(), 4u);
  const auto expect = [&](size_t i, const char* front, const char* op, int64_t runs) {
    EXPECT_EQ(found[i].front, front);
    EXPECT_EQ(found[i].op, op);
    EXPECT_EQ(found[i].runs, runs) << op;
  };
  expect(0, "embed", "qkv", 1);
  expect(1, "qkv", "attention_prefill", 2);
  expect(2, "attention_prefill", "gate_up_swiglu", 2);
  expect(3, "gate_up_swiglu", "qkv", 1);
  EXPECT_TRUE(neighbours_of(test::sample_ops(), {}).empty());
}

TEST(ReadAhead, APairIsTheOpAndTheOneInFront) {
  const ProfileFile file = file_that_reads_ahead();
  const auto pairs = read_ahead_pairs(file.header.ops, file.launches, file.steps);
  ASSERT_EQ(pairs.size(), 1u);
  const ReadAheadPair& pair = pairs[0];
  EXPECT_EQ(pair.front, "attention_decode");
  EXPECT_EQ(pair.op, "gate_up_swiglu");
  EXPECT_EQ(pair.runs, 4);
  EXPECT_EQ(pair.ahead_bytes, 1 << 16);
  EXPECT_DOUBLE_EQ(pair.of_front.us, 40.0);
  EXPECT_DOUBLE_EQ(pair.of_op.us, 20.0);
  EXPECT_DOUBLE_EQ(pair.of_op.gbps(), 380.0);
  EXPECT_DOUBLE_EQ(pair.of_op.roofline(), 1.9);
  EXPECT_DOUBLE_EQ(pair.both().us, 60.0);
  EXPECT_NEAR(pair.both().gbps(), 8e6 / 60e3, 1e-9);
  EXPECT_NEAR(pair.both().roofline(), 40.0 / 60.0, 1e-9);
}

TEST(ReadAhead, AnOpWithTwoFrontsIsDividedByRuns) {
  ProfileFile file = file_that_reads_ahead();
  for (StepSummary& step : file.steps)
    step.ops[1].launches = {kAhead};  // qkv: behind embed, and behind the gate_up of the layer before
  file.launches[kAhead].reads_ahead_bytes = 1 << 20;
  const auto pairs = read_ahead_pairs(file.header.ops, file.launches, file.steps);
  ASSERT_EQ(pairs.size(), 3u);
  EXPECT_EQ(pairs[0].front, "attention_decode");
  EXPECT_EQ(pairs[1].front, "gate_up_swiglu");
  EXPECT_EQ(pairs[1].op, "qkv");
  EXPECT_EQ(pairs[1].runs, 2);
  EXPECT_DOUBLE_EQ(pairs[1].of_front.us, 10.0);
  EXPECT_DOUBLE_EQ(pairs[1].of_op.us, 8.0);
  EXPECT_EQ(pairs[1].ahead_bytes, 200'000) << "no more than a run of the op moves";
  EXPECT_EQ(pairs[2].front, "embed");
  EXPECT_DOUBLE_EQ(pairs[2].of_front.us, 2.0);
  EXPECT_DOUBLE_EQ(pairs[2].of_op.us, 8.0);
}

TEST(ReadAhead, OnlyWhereSomethingReadsAhead) {
  ProfileFile file = file_that_reads_ahead();
  EXPECT_TRUE(read_ahead_pairs(file.header.ops, file.launches, file.steps, StepPhase::prefill).empty());
  EXPECT_TRUE(read_ahead_pairs(file.header.ops, {}, file.steps).empty());
  file.launches[kAhead].reads_ahead_bytes = 0;
  EXPECT_TRUE(read_ahead_pairs(file.header.ops, file.launches, file.steps).empty());
  const std::string text = render_report(file, {});
  EXPECT_EQ(text.find("read ahead"), std::string::npos) << text;
}

TEST(ReadAhead, CausesOfMoreThanTheRoofline) {
  const ProfileFile file = file_that_reads_ahead();
  const Aggregate sum = aggregate(file.steps);
  const auto over = [&](const std::string& op, int64_t cache_bytes) {
    return over_roofline(*std::ranges::find(sum.ops, op, &OpAggregate::op), file.launches, cache_bytes);
  };
  EXPECT_FALSE(over("lm_head", 1'000'000)) << "50 %";
  ASSERT_TRUE(over("gate_up_swiglu", 1'000'000));
  EXPECT_TRUE(over("gate_up_swiglu", 1'000'000)->read_ahead);
  EXPECT_FALSE(over("gate_up_swiglu", 1'000'000)->cache) << "1.9 MB a run";
  EXPECT_TRUE(over("gate_up_swiglu", 2'000'000)->cache);
  EXPECT_FALSE(over("gate_up_swiglu", 0)->cache);
  std::vector<OpAggregate> ops{*std::ranges::find(sum.ops, "gate_up_swiglu", &OpAggregate::op)};
  EXPECT_EQ(over_roofline_sentence(ops, file.launches, 2'097'152),
            "over 100 % of the roofline: gate_up_swiglu (190 %): reads up to 0.0625 MiB ahead, in time that "
            "the op in "
            "front is charged for, and the 1.81 MiB of a run fit into the cache of 2.00 MiB");
  ops[0].launches.clear();
  EXPECT_EQ(over_roofline_sentence(ops, file.launches, 1'000'000),
            "over 100 % of the roofline: gate_up_swiglu (190 %): cause not known");
  EXPECT_EQ(
      over_roofline_sentence(ops, file.launches, 0),
      "over 100 % of the roofline: gate_up_swiglu (190 %): perhaps from a cache, whose size is not known");
  ops[0].bound = Bound::unknown;
  EXPECT_EQ(over_roofline_sentence(ops, file.launches, 0), "");
}

TEST(ReadAhead, StandsInEveryReport) {
  const ProfileFile file = file_that_reads_ahead();
  for (const ReportFormat format : {ReportFormat::table, ReportFormat::md}) {
    const std::string text = render_report(file, {.format = format});
    EXPECT_NE(text.find("Ops that read ahead"), std::string::npos) << text;
    EXPECT_NE(text.find("+ gate_up_swiglu"), std::string::npos) << text;
    EXPECT_NE(text.find("= both"), std::string::npos) << text;
    EXPECT_NE(text.find("moves time"), std::string::npos) << text;
    EXPECT_EQ(text.find("memory)"), std::string::npos) << "no counters: " << text;
  }
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  ASSERT_EQ(json["read_ahead"].size(), 1u);
  EXPECT_EQ(json["read_ahead"][0]["front"], "attention_decode");
  EXPECT_EQ(json["read_ahead"][0]["runs"], 4);
  EXPECT_DOUBLE_EQ(json["read_ahead"][0]["both"]["us"].get<double>(), 60.0);
  EXPECT_DOUBLE_EQ(json["read_ahead"][0]["of_op"]["roofline"].get<double>(), 1.9);
  EXPECT_EQ(json["launches"][kAhead]["reads_ahead_bytes"], 1 << 16);
  for (const auto& op : json["ops"]) {
    const bool is_over = op["op"] == "gate_up_swiglu";
    EXPECT_EQ(op["over_roofline_by"], is_over ? nlohmann::json{"read ahead"} : nlohmann::json::array());
  }
}

TEST(ReadAhead, MeasuredAgainstCountedIsOfTheSumToo) {
  ProfileFile file = file_that_reads_ahead();
  CounterWindow window = test::sample_counters();
  const auto counted = [](const char* op, double us, double measured, double counted_bytes) {
    CounterOp found{.op = op, .phase = StepPhase::decode, .calls = 2, .us = us, .measured = {}};
    found.measured[Counter::dram_read_bytes] = measured;
    found.counted_read_bytes = counted_bytes;
    return found;
  };
  window.work = {{.phase = StepPhase::decode,
                  .graph_batch = 4,
                  .steps = 3,
                  .replays = 3,
                  .ops = {counted("attention_decode", 20.0, 900'000.0, 200'000.0),
                          counted("gate_up_swiglu", 10.0, 3'100'000.0, 3'800'000.0)}}};
  file.counters = {window};
  const auto pairs = read_ahead_pairs(file.header.ops, file.launches, file.steps);
  const auto found = counted_pairs(file.header.ops, window.work[0], pairs);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_DOUBLE_EQ(found[0].of_front.of_counted(), 4.5);
  EXPECT_DOUBLE_EQ(found[0].both().of_counted(), 1.0);
  EXPECT_NEAR(found[0].both().read_gbps(), 4e6 / 30e3, 1e-9);
  const std::string text = render_report(file, {});
  EXPECT_NE(text.find("Ops that read ahead, measured in 3 decode steps of graph decode_b4"),
            std::string::npos)
      << text;
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_DOUBLE_EQ(json["counters"]["work"][0]["read_ahead"][0]["both"]["of_counted"].get<double>(), 1.0);
  window.work[0].ops.pop_back();
  EXPECT_TRUE(counted_pairs(file.header.ops, window.work[0], pairs).empty());
}

}  // namespace
}  // namespace minfer
