#include "profiling/summary/rank_report.h"

#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

OpInfo rank_op(const char* op, OpKind kind) {
  OpInfo info;
  info.name = op;
  info.kind = kind;
  return info;
}

TEST(RankStep, TellsComputingExchangingAndWaitingApart) {
  const std::vector<OpInfo> ops{rank_op("qkv", OpKind::linear),
                                rank_op("attn_all_reduce", OpKind::all_reduce)};
  StepStamps stamps;
  stamps.ops.push_back({.op = 0, .begin_ns = 1'000});
  stamps.ops.push_back({.op = 1, .waited_ns = 500, .begin_ns = 4'000});
  stamps.ops.push_back({.op = 0, .begin_ns = 6'000});
  stamps.ops.push_back({.op = 1, .waited_ns = 2'999, .begin_ns = 7'000});
  stamps.end_ns = 9'000;
  const RankStep step = rank_step_of(5, {1, 2}, stamps, ops);
  EXPECT_EQ(step.step, 5);
  EXPECT_EQ(step.rank, 1);
  EXPECT_EQ(step.begin_ns, 1'000);
  EXPECT_EQ(step.end_ns, 9'000);
  EXPECT_EQ(step.computed_ns, 3'000 + 1'000);
  EXPECT_EQ(step.exchange_ns, 2'000 + 2'000);
  EXPECT_EQ(step.waited_ns, 500 + 2'000) << "no longer than the op";
}

/// Ops from `begin_ns` to `end_ns` on a device that the host waited for.
StepStamps device_step(int64_t begin_ns, int64_t end_ns) {
  StepStamps stamps;
  stamps.ops.push_back({.op = 0, .begin_ns = begin_ns});
  stamps.end_ns = end_ns;
  stamps.waited_until_ns = end_ns + 100;
  return stamps;
}

TEST(RankStepMaker, AddsWhatTheDeviceIdledBeforeAStepThatGoesOn) {
  const std::vector<OpInfo> ops{rank_op("qkv", OpKind::linear)};
  RankStepMaker maker({1, 2});
  const auto idle_ns = [&](int64_t step, int64_t begin_ns, int64_t end_ns, bool has_before) {
    return maker.make(step, device_step(begin_ns, end_ns), ops, {.has_before = has_before}).idle_ns;
  };
  EXPECT_EQ(idle_ns(4, 10'000, 20'000, true), 0) << "the step before is not known";
  EXPECT_EQ(idle_ns(5, 23'000, 30'000, true), 3'000);
  EXPECT_EQ(idle_ns(6, 90'000, 99'000, false), 0) << "there was no work";
  EXPECT_EQ(idle_ns(8, 110'000, 120'000, true), 0) << "a step in between was not recorded";
  EXPECT_EQ(idle_ns(9, 119'500, 125'000, true), 0);
}

TEST(RankStepMaker, AddsWhatTheDeviceIdledBetweenOpsThatTheHostLaunched) {
  const std::vector<OpInfo> ops{rank_op("qkv", OpKind::linear)};
  StepStamps stamps = device_step(100'000, 300'000);
  stamps.ops.front().launched_ns = 99'000;
  stamps.ops.front().end_ns = 120'000;
  stamps.ops.push_back({.op = 0, .begin_ns = 200'000, .launched_ns = 195'000, .end_ns = 300'000});
  const RankStep step = RankStepMaker({0, 2}).make(0, stamps, ops, {});
  EXPECT_EQ(step.idle_ns, 80'000);
}

TEST(RankStepMaker, TakesTheOpsOutOfTheLaunchThatRanThem) {
  const std::vector<OpInfo> ops{rank_op("qkv", OpKind::linear)};
  const RankStepMaker::Host host{.launch_ns = 12'000, .finish_ns = 500};
  const RankStep on_device = RankStepMaker({0, 2}).make(0, device_step(0, 10'000), ops, host);
  EXPECT_EQ(on_device.launch_ns, 12'000);
  EXPECT_EQ(on_device.host_ns, 12'500);
  StepStamps stamps = device_step(0, 10'000);
  stamps.waited_until_ns = 0;
  const RankStep on_host = RankStepMaker({0, 2}).make(0, stamps, ops, host);
  EXPECT_EQ(on_host.launch_ns, 2'000);
  EXPECT_EQ(on_host.host_ns, 2'500);
}

RankStep step_of(int64_t step, int32_t rank, int64_t begin_us, int64_t computed_us, int64_t waited_us) {
  return {.step = step,
          .rank = rank,
          .begin_ns = begin_us * 1'000,
          .end_ns = (begin_us + computed_us + waited_us + 10) * 1'000,
          .computed_ns = computed_us * 1'000,
          .exchange_ns = (waited_us + 10) * 1'000,
          .waited_ns = waited_us * 1'000,
          .host_ns = 30'000 + 1'000 * step,
          .launch_ns = 20'000,
          .idle_ns = 4'000 * rank};
}

RankReportSum sum_of_two() {
  ProfileHeader header;
  header.options = {{"tensor_parallel_size", "2"}};
  RankReportSum sum;
  sum.set_header(header);
  return sum;
}

TEST(RankReport, HoldsRanksOfAStepAgainstEachOther) {
  RankReportSum sum = sum_of_two();
  sum.add(step_of(0, 0, 100, 50, 20));
  sum.add(step_of(1, 0, 300, 50, 40));  // lines of steps may come between
  sum.add(step_of(0, 1, 104, 70, 0));
  sum.add(step_of(1, 1, 300, 90, 0));
  sum.add(step_of(2, 0, 500, 1'000, 0));  // the run ended before the other rank's line
  const RankReport report = sum.result();
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[0].steps, 2);
  EXPECT_DOUBLE_EQ(report.ranks[0].computed_us, 50.0);
  EXPECT_DOUBLE_EQ(report.ranks[0].exchange_us, 40.0);
  EXPECT_DOUBLE_EQ(report.ranks[0].waited_us, 30.0);
  EXPECT_DOUBLE_EQ(report.ranks[1].begin_after_us, 2.0);
  EXPECT_DOUBLE_EQ(report.ranks[1].end_after_us, 2.0);
  EXPECT_DOUBLE_EQ(report.skew_us, 30.0);
  EXPECT_DOUBLE_EQ(report.exchange_share, 40.0 / 90.0);
  const Table table = rank_table(report);
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(std::vector(table.rows[1].begin(), table.rows[1].begin() + 6),
            (std::vector<std::string>{"1", "2", "30.5", "31.0", "4.00", "4.00"}));
}

TEST(RankReport, LinesOfAnEarlierStepOfThatNumberAreLeftOut) {
  RankReportSum sum = sum_of_two();
  sum.add(step_of(0, 1, 100, 50, 20));  // of an earlier run that ended here
  sum.add(step_of(0, 0, 90'000, 50, 20));
  sum.add(step_of(0, 1, 90'003, 50, 20));
  const RankReport report = sum.result();
  ASSERT_EQ(report.ranks.size(), 2u);
  EXPECT_EQ(report.ranks[0].steps, 1);
  EXPECT_DOUBLE_EQ(report.ranks[1].begin_after_us, 3.0);
}

TEST(RankReport, OneRankHasNone) {
  EXPECT_TRUE(RankReportSum().result().ranks.empty());
}

TEST(RankLines, AreReadAsTheyWereWritten) {
  const RankStep step = step_of(7, 1, 100, 50, 20);
  std::string line, text;
  append_line(line, step);
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/rank.schema.json"))));
  EXPECT_EQ(schema.check(nlohmann::json::parse(line)), "");
  append_header_line(text, test::sample_header());
  std::istringstream stream(text + line);
  const ProfileFile file = read_profile(stream, "run.jsonl");
  ASSERT_EQ(file.rank_steps.size(), 1u);
  std::string again;
  append_line(again, file.rank_steps[0]);
  EXPECT_EQ(again, line);
}

TEST(RankLines, OlderOnesHaveNoHostTimes) {
  RankStep step = step_of(7, 1, 100, 50, 20);
  step.host_ns = step.launch_ns = step.idle_ns = RankStep::kNotKnown;
  std::string text;
  append_header_line(text, test::sample_header());
  append_line(text, step);
  EXPECT_EQ(text.find("host_us\":-"), std::string::npos);
  std::istringstream stream(text);
  const ProfileFile file = read_profile(stream, "run.jsonl");
  ASSERT_EQ(file.rank_steps.size(), 1u);
  EXPECT_EQ(file.rank_steps[0].host_ns, RankStep::kNotKnown);
  EXPECT_EQ(file.rank_steps[0].idle_ns, RankStep::kNotKnown);
  RankReportSum sum = sum_of_two();
  sum.add(file.rank_steps[0]);
  step.rank = 0;
  sum.add(step);
  EXPECT_EQ(rank_table(sum.result()).rows.at(0).at(2), "-");
}

}  // namespace
}  // namespace minfer
