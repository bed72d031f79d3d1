// Lines of traced ranges and their kernels, written and read back.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "profiling/json/profile_writer.h"
#include "profiling/report/device/range_report.h"
#include "profiling/report/report.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/cuts.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/profiling/traced_steps.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

/// A profile file of two steps, followed by a traced range.
std::string traced_text(const RangeAnalysis& analysis) {
  std::string text;
  append_header_line(text, test::sample_header());
  for (const StepSummary& step : test::sample_steps(2))
    append_line(text, step);
  append_line(text, analysis.line());
  analysis.for_each_step([&](const StepKernels& step) { append_line(text, step); });
  analysis.for_each_kernel([&](const KernelLine& kernel) { append_line(text, kernel); });
  return text;
}

ProfileFile read_traced(const std::string& text) {
  std::istringstream stream(text);
  return read_profile(stream, "run.jsonl");
}

std::string traced_refusal(const std::string& text) {
  return test::refusal_of<FileError>([&] { read_traced(text); });
}

/// The same with the ranges of two ranks, one behind the other.
std::string text_of_two_ranks() {
  std::string text;
  ProfileHeader header = test::sample_header();
  append_header_line(text, header);
  for (StepSummary step : test::sample_steps(2)) {
    step.step += 10;
    append_line(text, step);
  }
  for (RangeTrace& range : by_rank(test::traced_range_of_two(2))) {
    const RangeAnalysis analysis(std::move(range), test::traced_ops());
    append_line(text, analysis.line());
    analysis.for_each_step([&](const StepKernels& step) { append_line(text, step); });
    analysis.for_each_kernel([&](const KernelLine& kernel) { append_line(text, kernel); });
  }
  return text;
}

TEST(KernelLines, NameTheRankIfItIsNotTheFirst) {
  const std::string text = text_of_two_ranks();
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/kernel.schema.json"))));
  int64_t of_second = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("minfer.kernel/1") == std::string::npos) continue;
    EXPECT_EQ(schema.check(nlohmann::json::parse(line)), "") << line;
    of_second += line.find("\"rank\":1") != std::string::npos;
  }
  EXPECT_EQ(of_second, 1 + 2 + 2 * 4) << "the range, its steps, their kernels";
  const ProfileFile file = read_traced(text);
  ASSERT_EQ(file.ranges.size(), 2u);
  EXPECT_EQ(file.ranges[1].rank, 1);
  EXPECT_EQ(std::ranges::count(file.kernels, 1, &KernelLine::rank), 8);
  EXPECT_EQ(std::ranges::count(file.traced, 1, &StepKernels::rank), 2);
  ASSERT_TRUE(file.steps[0].kernels.has_value());
  EXPECT_EQ(file.steps[0].kernels->rank, 0);
}

// The sums are the first rank's, like the ops; the other ranks have a table.
TEST(KernelLines, OfOtherRanksLeaveTheReportAsItWas) {
  ProfileFile file = read_traced(text_of_two_ranks());
  const std::string both = render_report(file, {});
  EXPECT_NE(both.find("Traced kernels by rank"), std::string::npos) << both;
  const nlohmann::json json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_EQ(json.at("ranges").size(), 1u);
  ASSERT_EQ(json.at("rank_ranges").size(), 1u);
  EXPECT_EQ(json.at("rank_ranges")[0].at("rank"), 1);
  EXPECT_EQ(json.at("rank_ranges")[0].at("kernels"), json.at("ranges")[0].at("kernels"));
  std::erase_if(file.ranges, [](const RangeLine& range) { return range.rank > 0; });
  std::erase_if(file.kernels, [](const KernelLine& kernel) { return kernel.rank > 0; });
  std::erase_if(file.traced, [](const StepKernels& step) { return step.rank > 0; });
  const std::string first = render_report(file, {});
  EXPECT_EQ(first.find("Traced kernels by rank"), std::string::npos);
  const size_t begin = both.find("Traced kernels by rank");
  const size_t end = both.find("\n\n", begin) + 2;
  EXPECT_EQ(both.substr(0, begin) + both.substr(end), first);
}

TEST(KernelLines, ReadBackAsWritten) {
  const RangeAnalysis analysis(test::traced_range(3), test::traced_ops());
  const ProfileFile file = read_traced(traced_text(analysis));
  EXPECT_EQ(file.steps.size(), 2u);
  ASSERT_EQ(file.ranges.size(), 1u);
  const RangeLine& range = file.ranges.front();
  const RangeLine& expected = analysis.line();
  EXPECT_EQ(range.first_step, 10);
  EXPECT_EQ(range.last_step, 12);
  EXPECT_EQ(range.error, "");
  EXPECT_EQ(range.steps, expected.steps);
  EXPECT_EQ(range.kernels, expected.kernels);
  EXPECT_EQ(range.copies, expected.copies);
  EXPECT_EQ(range.dropped, expected.dropped);
  EXPECT_EQ(range.invalid, expected.invalid);
  EXPECT_EQ(range.outside, expected.outside);
  EXPECT_EQ(range.own_clock, expected.own_clock);
  EXPECT_NEAR(range.busy_us, expected.busy_us, 0.001);
  EXPECT_NEAR(range.idle_us, expected.idle_us, 0.001);
  EXPECT_EQ(range.of_profiler, 2);
  ASSERT_EQ(range.strangers.size(), 1u);
  EXPECT_EQ(range.strangers[0].kernel, "norm");
  EXPECT_EQ(range.strangers[0].outside, 1);
  EXPECT_EQ(range.idle.start.gaps, 2);
  EXPECT_NEAR(range.idle.start.us, expected.idle.start.us, 0.001);
  EXPECT_EQ(range.idle.device.gaps, expected.idle.device.gaps);
  EXPECT_NEAR(range.idle.device.us, expected.idle.device.us, 0.001);
  EXPECT_EQ(range.idle.host.gaps + range.idle.unknown.gaps, 0);
  ASSERT_EQ(range.idle.ops.size(), expected.idle.ops.size());
  EXPECT_EQ(range.idle.ops[0].op, expected.idle.ops[0].op);
  EXPECT_NEAR(range.idle.ops[0].us(), expected.idle.ops[0].us(), 0.001);
  ASSERT_EQ(file.traced.size(), 3u);
  EXPECT_EQ(file.traced[2].step, 12);
  EXPECT_EQ(file.traced[2].kernels, 4);
  EXPECT_TRUE(file.traced[2].is_whole());
  EXPECT_NEAR(file.traced[2].attributed_us, 20.0, 0.001);
  EXPECT_EQ(range.attribution.steps, 3);
  EXPECT_NEAR(range.attribution.difference(), expected.attribution.difference(), 1e-6);
  EXPECT_NEAR(range.attribution.own_difference(), expected.attribution.own_difference(), 1e-6);
  std::vector<KernelLine> kernels;
  analysis.for_each_kernel([&](const KernelLine& kernel) { kernels.push_back(kernel); });
  ASSERT_EQ(file.kernels.size(), kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    SCOPED_TRACE(i);
    const KernelLine& read = file.kernels[i];
    EXPECT_EQ(read.step, kernels[i].step);
    EXPECT_EQ(read.kind, kernels[i].kind);
    EXPECT_EQ(read.op, kernels[i].op);
    EXPECT_EQ(read.layer, kernels[i].layer);
    EXPECT_EQ(read.phase, kernels[i].phase);
    EXPECT_EQ(read.kernel, kernels[i].kernel);
    EXPECT_EQ(read.launch, kernels[i].launch);
    EXPECT_EQ(read.stream, kernels[i].stream);
    EXPECT_EQ(read.in_graph, kernels[i].in_graph);
    EXPECT_EQ(read.start_ns, kernels[i].start_ns);
    EXPECT_EQ(read.bytes, kernels[i].bytes);
    EXPECT_NEAR(read.us, kernels[i].us, 0.001);
    EXPECT_NEAR(read.own_us, kernels[i].own_us, 0.001);
    EXPECT_NEAR(read.gap_us, kernels[i].gap_us, 0.001);
    EXPECT_EQ(read.gap_cause, kernels[i].gap_cause);
    EXPECT_NEAR(read.launch_delay_us, kernels[i].launch_delay_us, 0.001);
  }
}

TEST(KernelLines, ARangeThatWasNotTracedKeepsItsReason) {
  RangeTrace range;
  range.first_step = 100;
  range.error = "CUPTI is held by \"Nsight Systems\"";
  const RangeAnalysis analysis(std::move(range), test::traced_ops());
  const ProfileFile file = read_traced(traced_text(analysis));
  ASSERT_EQ(file.ranges.size(), 1u);
  EXPECT_EQ(file.ranges.front().error, "CUPTI is held by \"Nsight Systems\"");
  EXPECT_TRUE(file.kernels.empty());
  EXPECT_EQ(range_sentence(file.ranges.front()),
            "kernels from step 100 on: not traced: CUPTI is held by \"Nsight Systems\"");
}

TEST(KernelLines, EveryCutIsReadableToTheLastWholeLine) {
  const std::string text = traced_text(RangeAnalysis(test::traced_range(2), test::traced_ops()));
  for (const size_t bytes : test::cuts_of(text, text.find('\n') + 1)) {
    const std::string cut = text.substr(0, bytes);
    const ProfileFile file = read_traced(cut);
    const auto lines = static_cast<size_t>(std::ranges::count(cut, '\n'));
    ASSERT_EQ(1 + file.steps.size() + file.ranges.size() + file.traced.size() + file.kernels.size(), lines)
        << bytes;
    ASSERT_EQ(file.note.empty(), cut.back() == '\n') << bytes;
  }
}

TEST(KernelLines, HostileLinesAreRefusedByPlaceAndField) {
  const std::string text = traced_text(RangeAnalysis(test::traced_range(1), test::traced_ops()));
  const auto expect = [&](std::string_view from, std::string_view to, const std::string& message) {
    std::string changed = text;
    const size_t at = changed.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    EXPECT_EQ(traced_refusal(changed.replace(at, from.size(), to)), message);
  };
  expect("minfer.kernel/1", "minfer.kernel/2",
         "run.jsonl:4: schema minfer.kernel/2, expected minfer.step/2, minfer.launch/1, minfer.kernel/1, "
         "minfer.counters/1, minfer.memory/1, minfer.request/1, minfer.rank/1, minfer.host/1, "
         "minfer.device/1 or minfer.trial/1");
  expect("\"kind\":\"kernel\"", "\"kind\":\"spell\"",
         "run.jsonl:6: kind: expected one of kernel, memcpy, memset, found string \"spell\"");
  expect("\"graph\":true", "\"graph\":1", "run.jsonl:6: graph: expected true or false, found 1");
  expect("\"us\":5,", "\"us\":-5,",
         "run.jsonl:6: us: expected a number that is 0, or from 1e-9 to 1e15, found -5");
  expect("\"runs\":", "\"ruins\":", "run.jsonl:4: range.attribution.ops[0]: has no field \"runs\"");
  expect("\"gap_cause\":\"start\"", "\"gap_cause\":\"fate\"",
         "run.jsonl:6: gap_cause: expected one of start, host, device, found string \"fate\"");
  expect("\"attributed_us\":", "\"attributed\":", "run.jsonl:5: traced_step: has no field \"attributed_us\"");
  expect("\"clock\":\"host\"", "\"clock\":{}", "run.jsonl:4: range.clock: expected a string, found object");
}

TEST(KernelLines, TheReportSaysWhatWasTracedAndHowFarStampsAreFromIt) {
  const RangeAnalysis analysis(test::traced_range(3), test::traced_ops());
  const std::string sentence = range_sentence(analysis.line());
  for (const char* part :
       {"steps 10 to 12", "12 and 3 copies", "87.0 %", "4 dropped", "0 with invalid times", "14.5 %"})
    EXPECT_NE(sentence.find(part), std::string::npos) << part << " in: " << sentence;
  EXPECT_NE(sentence.find("2 of the profiler itself"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("without a place: norm (1 of no step)"), std::string::npos) << sentence;
  const Table idle = range_idle_table(analysis.line());
  ASSERT_EQ(idle.rows.size(), 2u);
  EXPECT_EQ(idle.rows[0][0], "the first of a step");
  EXPECT_EQ(idle.rows[1], (std::vector<std::string>{"launched in time (device)", "12", "5.00", "22.0"}));
  const Table idle_ops = idle_ops_table(analysis.line());
  ASSERT_EQ(idle_ops.rows.size(), 3u);
  EXPECT_EQ(idle_ops.rows[1], (std::vector<std::string>{"product", "6", "2.00", "0", "2.00"}));
  const Table table = attribution_table(analysis.line());
  ASSERT_EQ(table.rows.size(), 2u);
  EXPECT_EQ(table.rows[0], (std::vector<std::string>{"product", "3", "12.0", "10.0", "10.0", "8.8", "8.8"}));
}

TEST(KernelLines, AWriterPutsThemBehindTheStepsOfTheRange) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "run.jsonl";
  std::vector<RangeLine> told;
  ProfileHeader header = test::sample_header();
  header.ops = test::traced_ops();
  LaunchTable launches;
  for (const KernelLaunch& launch : test::traced_launches())
    launches.add(launch);
  header.launches = &launches;
  ProfileWriter writer(path, header,
                       {.first_step = 10, .last_step = 12, .on_range = [&](const RangeLine& range) {
                          told.push_back(range);
                        }});
  const RangeTrace range = test::traced_range(3);
  for (const TracedStep& step : range.steps) {
    StepRecord record;
    record.step = step.step;
    record.batch.shape = step.shape;
    record.stamps = step.stamps;
    record.start_ns = step.stamps.ops.front().begin_ns;
    record.end_ns = step.stamps.end_ns;
    writer.consume(record);
  }
  writer.add_range(range);
  EXPECT_EQ(writer.close().written, 3u);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told.front().kernels, 12);
  const ProfileFile file = read_profile(path);
  EXPECT_EQ(file.steps.size(), 3u);
  ASSERT_EQ(file.ranges.size(), 1u);
  EXPECT_EQ(file.kernels.size(), 15u);
  EXPECT_EQ(file.launches.size(), 3u);
}

TEST(KernelLines, AWriterMayBeToldItsStepsLate) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "run.jsonl";
  ProfileWriter writer(path, test::sample_header());
  writer.set_steps(3, 4);
  for (int64_t step = 0; step < 8; ++step)
    writer.consume(test::sample_record(step, 4, 0));
  EXPECT_EQ(writer.close().written, 2u);
  EXPECT_EQ(read_profile(path).steps.front().step, 3);
}

}  // namespace
}  // namespace minfer
