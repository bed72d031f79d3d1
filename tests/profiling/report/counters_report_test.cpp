#include "profiling/report/device/counters_report.h"

#include <array>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiling/report/report.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

/// Two different windows, and one that was impossible.
std::vector<CounterWindow> three_windows() {
  CounterWindow second = test::sample_counters();
  second.clock = SampleClock::device;
  second.lost = 0;
  second.work[0].steps = 6;
  CounterOp& op = second.work[0].ops[0];
  op.us = 1'890.125;
  op.measured[Counter::sm_active] = 0.16875;
  second.work[1].ops[0].measured[Counter::tensor_active] = 0.25;
  CounterWindow failed;
  failed.error = "hardware counters: cuptiPmSamplingStart: CUPTI_ERROR_UNKNOWN (999)";
  return {test::sample_counters(), second, failed};
}

CounterAggregate aggregate_counters(std::span<const CounterWindow> windows) {
  CounterAggregate sum;
  for (const CounterWindow& window : windows)
    add_window(sum, window);
  sort_work(sum);
  return sum;
}

TEST(CountersReport, AddsWindowsUp) {
  const CounterAggregate sum = aggregate_counters(three_windows());
  EXPECT_EQ(sum.windows, 2);
  EXPECT_EQ(sum.lost, 3);
  EXPECT_EQ(sum.fitted, 1);
  EXPECT_EQ(sum.steps, 2);
  EXPECT_DOUBLE_EQ(sum.read_bytes, 2 * 16'060'522'496.5);
  EXPECT_DOUBLE_EQ(sum.counted_written_bytes, 2 * 8e6);
  EXPECT_NE(sum.error.find("(999)"), std::string::npos);
  ASSERT_EQ(sum.work.size(), 2u);
  EXPECT_EQ(sum.work[0].graph_batch, 32);
  EXPECT_EQ(sum.work[0].steps, 8);
  EXPECT_EQ(sum.work[0].replays, 8);
  // Two steps of the first window and six of the second.
  EXPECT_NEAR(sum.work[0].ops[0].us, 1'790.125, 1e-6);
  EXPECT_EQ(sum.work[0].ops[0].samples, 2 * 2'981);
  EXPECT_NEAR(sum.work[0].ops[0].measured[Counter::sm_active], 0.36875, 1e-9);
  EXPECT_DOUBLE_EQ(sum.work[1].ops[0].measured[Counter::tensor_active], 0.25);
  EXPECT_EQ(aggregate_counters({}).windows, 0);
}

TEST(CountersReport, TellsStepsBesideAWindowFromOthers) {
  CounterWindow window;
  window.begin_ns = 10'000'000;
  window.us = 1'000.0;
  window.start_ms = window.stop_ms = 0.5;
  CounterWindow failed = window;
  failed.error = "not to be had";
  failed.begin_ns = 100'000'000;
  std::vector<StepSummary> steps;
  for (int i = 0; i < 200; ++i) {
    StepSummary& step = steps.emplace_back();
    step.start_ns = i * 1'000'000;
    // From 9.5 to 11.5 ms: steps 9, 10 and 11.
    step.wall_us = i >= 9 && i <= 11 ? 990.0 : 900.0;
    step.batch.shape.decode_tokens = 4;
    step.batch.graph_batch = i % 50 == 49 ? 8 : 4;
  }
  const WindowCost cost = window_cost(std::array{window, failed}, steps);
  EXPECT_EQ(cost.inside, 3);
  EXPECT_EQ(cost.outside, 193);
  EXPECT_DOUBLE_EQ(cost.inside_us, 990.0);
  EXPECT_DOUBLE_EQ(cost.outside_us, 900.0);
  const std::vector<std::string> lines = counter_sentences({}, cost);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("3 steps beside an open window took +10.00 % against 193"), std::string::npos)
      << lines[0];
  EXPECT_EQ(window_cost({}, steps).inside, 0);
}

CounterWindow window_of(int64_t begin_ns, double us) {
  CounterWindow window;
  window.begin_ns = begin_ns;
  window.us = us;
  return window;
}

/// Each step is 0.1 % longer than the one before, with or without windows.
TEST(CountersReport, GrowingContextsAreNoCostOfAWindow) {
  WindowCostSum sum;
  double wall_us = 1'000.0, begin_us = 0.0;
  int64_t inside = 0;
  for (int i = 0; i < 400; ++i) {
    StepSummary step;
    step.start_ns = static_cast<int64_t>(begin_us * 1e3);
    step.wall_us = wall_us;
    step.batch.shape.decode_tokens = step.batch.graph_batch = 4;
    sum.add(step);
    if (i % 100 == 90) {  // over steps 88 to 90
      sum.add(window_of(static_cast<int64_t>((begin_us - 1.5 * wall_us) * 1e3), 1.6 * wall_us));
      inside += 3;
    }
    begin_us += wall_us;
    wall_us *= 1.001;
  }
  const WindowCost cost = sum.result();
  EXPECT_EQ(cost.inside, inside);
  EXPECT_NEAR(cost.share(), 0.0, 1e-4);
}

/// Steps grow, and those beside a window take 5 % more; a window before the first step has neighbours on one side only.
TEST(CountersReport, TheCostIsWhatLiesAboveTheGrowth) {
  std::vector<StepSummary> steps;
  double wall_us = 1'000.0, begin_us = 0.0;
  for (int i = 0; i < 300; ++i) {
    StepSummary& step = steps.emplace_back();
    step.start_ns = static_cast<int64_t>(begin_us * 1e3);
    step.wall_us = i % 60 == 30 ? wall_us * 1.05 : wall_us;
    step.batch.shape.decode_tokens = step.batch.graph_batch = 4;
    begin_us += step.wall_us;
    wall_us *= 1.001;
  }
  std::vector<CounterWindow> windows;
  for (size_t i = 30; i < steps.size(); i += 60)
    windows.push_back(window_of(steps[i].start_ns + 100'000, 100.0));
  EXPECT_NEAR(window_cost(windows, steps).share(), 0.05, 1e-3);
  const WindowCost first = window_cost(std::array{window_of(100'000, 100.0)}, steps);
  EXPECT_EQ(first.inside, 1);
  EXPECT_NEAR(first.share(), 0.0, 0.01) << "neighbours behind it alone";
}

/// A window of a rank that exchanged bytes by NVLink, or the reason why there is none.
CounterWindow rank_window(int32_t rank, const std::string& error = {}) {
  CounterWindow window;
  window.rank = rank;
  window.error = error;
  if (!error.empty()) return window;
  window = test::sample_counters();
  window.rank = rank;
  window.steps[0].measured[Counter::nvlink_received_bytes] = 2.5e6;
  window.steps[0].measured[Counter::nvlink_sent_bytes] = 3.5e6;
  window.work[0].ops[0].measured[Counter::tensor_active] = 0.4375;
  return window;
}

ProfileFile file_of_ranks(std::vector<CounterWindow> windows) {
  ProfileFile file;
  file.header = test::sample_header();
  file.header.options = {{"tensor_parallel_size", "3"}};
  file.steps = test::sample_steps(3);
  for (const StepSummary& step : file.steps) {
    for (const int32_t rank : {0, 1, 2})
      file.rank_steps.push_back({.step = step.step, .rank = rank, .begin_ns = 0, .end_ns = 10});
  }
  file.counters = std::move(windows);
  return file;
}

TEST(CountersReport, RanksStandSideBySide) {
  const ProfileFile file = file_of_ranks({test::sample_counters(), rank_window(1), rank_window(1),
                                          rank_window(2, "hardware counters of rank 2: refused (35)")});
  for (const ReportFormat format : {ReportFormat::table, ReportFormat::md}) {
    const std::string text = render_report(file, {.format = format});
    EXPECT_NE(text.find("1 window"), std::string::npos) << "the first rank's" << text;
    EXPECT_NE(text.find("Hardware counters by rank"), std::string::npos) << text;
    EXPECT_NE(text.find("hardware counters of rank 2: refused (35)"), std::string::npos) << text;
  }
  const Table table =
      rank_counters_table(aggregate_counters(std::array{file.counters[0]}),
                          {{1, aggregate_counters(std::array{file.counters[1], file.counters[2]})},
                           {2, aggregate_counters(std::array{file.counters[3]})}});
  using Row = std::vector<std::string>;
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0], (Row{"0", "1", "1", "16061", "100.0", "4405", "8.39", "-", "-", "96.9", "-"}));
  EXPECT_EQ(table.rows[1],
            (Row{"1", "2", "2", "16061", "100.0", "4405", "8.39", "2.50", "3.50", "96.9", "43.8"}));
  EXPECT_EQ(table.rows[2], (Row{"2", "0", "0", "-", "-", "-", "-", "-", "-", "-", "-"}));

  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_EQ(json["counters"]["windows"], 1) << "of the first rank";
  const auto& ranks = json["rank_counters"];
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(ranks[1]["rank"], 1);
  EXPECT_EQ(ranks[1]["steps"], 2);
  EXPECT_DOUBLE_EQ(ranks[1]["nvlink_received_bytes"], 5e6);
  EXPECT_DOUBLE_EQ(ranks[1]["nvlink_sent_bytes"], 7e6);
  EXPECT_DOUBLE_EQ(ranks[1]["tensor_active"], 0.4375);
  EXPECT_DOUBLE_EQ(ranks[1]["work"][0]["ops"][0]["dram_read_bytes"], 3'758'096'384.5);
  EXPECT_TRUE(ranks[0]["nvlink_sent_bytes"].is_null());
  EXPECT_EQ(ranks[2]["error"], "hardware counters of rank 2: refused (35)");
}

TEST(CountersReport, RanksThatWereNotReadAreNamed) {
  const std::string text =
      render_report(file_of_ranks({test::sample_counters()}), {.format = ReportFormat::md});
  EXPECT_NE(text.find("of the first of 3 ranks: the others' were not read"), std::string::npos) << text;
  EXPECT_EQ(text.find("Hardware counters by rank"), std::string::npos) << text;
}

TEST(CountersReport, CountersOfAnotherRankAloneAreATierToo) {
  const std::string text = render_report(
      file_of_ranks({rank_window(0, "hardware counters of rank 0: refused (35)"), rank_window(1)}),
      {.format = ReportFormat::md});
  EXPECT_NE(text.find("2 (hardware counters, 1 window)"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 0: refused (35)"), std::string::npos) << text;
}

TEST(CountersReport, StandsInEveryFormat) {
  ProfileFile file;
  file.header = test::sample_header();
  file.steps = test::sample_steps(3);
  const std::string without = render_report(file, {});
  EXPECT_EQ(without.find("Measured in"), std::string::npos);
  EXPECT_EQ(without.find("hardware counters"), std::string::npos);
  file.counters = three_windows();
  for (const ReportFormat format : {ReportFormat::table, ReportFormat::md}) {
    const std::string text = render_report(file, {.format = format});
    EXPECT_NE(text.find("2 windows of 10.2 ms"), std::string::npos) << text;
    EXPECT_NE(text.find("Measured in 8 decode steps of graph decode_b32"), std::string::npos) << text;
    EXPECT_NE(text.find("gate_up_swiglu"), std::string::npos);
    EXPECT_NE(text.find("100.0 % of the"), std::string::npos) << text;
    EXPECT_NE(text.find("(999)"), std::string::npos);
  }
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_TRUE(json["rank_counters"].empty()) << "one rank";
  EXPECT_EQ(json["counters"]["work"][0]["steps"], 8);
  EXPECT_DOUBLE_EQ(json["counters"]["work"][0]["ops"][0]["dram_read_bytes"], 3'758'096'384.5);
  EXPECT_TRUE(json["counters"]["work"][1]["ops"][0]["read_gbps"].is_null());
}

TEST(CountersReport, SaysHowManySamplesAnOpHadAndNoZeroWhereThereIsNone) {
  ProfileFile file;
  file.header = test::sample_header();
  file.steps = test::sample_steps(3);
  file.counters = {test::sample_counters()};
  file.counters[0].steps.clear();
  for (const ReportFormat format : {ReportFormat::table, ReportFormat::md}) {
    const std::string text = render_report(file, {.format = format});
    for (const char* word : {"samples", "2981", "not sampled"})
      EXPECT_NE(text.find(word), std::string::npos) << word << '\n' << text;
  }
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  const auto& sampled = json["counters"]["work"][0]["ops"][0];
  EXPECT_EQ(sampled["samples"], 2'981);
  EXPECT_TRUE(sampled["tensor_active"].is_null()) << "no column of it";
  const auto& missed = json["counters"]["work"][1]["ops"][0];
  EXPECT_EQ(missed["samples"], 0);
  for (const char* value : {"dram_read_bytes", "sm_active", "l2_hit", "read_error_bytes"})
    EXPECT_TRUE(missed.at(value).is_null()) << value;
  for (const char* sum : {"read_bytes", "counted_read_bytes", "written_bytes", "counted_written_bytes"})
    EXPECT_TRUE(json["counters"][sum].is_null()) << sum << ": no step was whole";

  // A file of an earlier version does not have the number of samples.
  file.counters[0].work[0].ops[0].samples = -1;
  file.counters.push_back(test::sample_counters());
  EXPECT_EQ(aggregate_counters(file.counters).work[0].ops[0].samples, -1);
  const auto old = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_TRUE(old["counters"]["work"][0]["ops"][0]["samples"].is_null());
}

}  // namespace
}  // namespace minfer
