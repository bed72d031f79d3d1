// All texts of a profile for people fit on a terminal.
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "profiling/diff/profile_diff.h"
#include "profiling/findings/evidence.h"
#include "profiling/findings/findings_report.h"
#include "profiling/json/json_reader.h"
#include "profiling/json/profile_writer.h"
#include "profiling/report/report.h"
#include "profiling/text/table.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_counters.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/profiling/whole_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

const std::vector<std::string>& gpu_profiles() {
  static const std::vector<std::string> kPaths{
      source_path("tests/benchmarks/results/cuda-2026-11-22-steps-b1.jsonl"),
      source_path("tests/benchmarks/results/cuda-2026-11-22-steps-b64.jsonl")};
  return kPaths;
}

void expect_to_fit(const std::string& text, const std::string& what) {
  EXPECT_FALSE(text.empty()) << what;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(display_width(line), kTextColumns) << what << ": " << line;
    EXPECT_FALSE(line.ends_with(' ')) << what << ": " << line;
  }
}

/// Checks the report in every view, the picture of a step, and the findings.
void expect_all_to_fit(const std::string& path) {
  const ProfileFile file = read_profile(path);
  ASSERT_FALSE(file.steps.empty()) << path;
  for (const bool colour : {false, true}) {
    for (const ReportView view : {ReportView::flat, ReportView::top_down, ReportView::bottom_up}) {
      const ReportOptions options{.view = view, .top = 0, .colour = colour};
      expect_to_fit(render_report(file, options), path + ", " + std::string(name(view)));
    }
    for (const StepSummary& step : file.steps)
      expect_to_fit(render_step(step, file.header, colour), path + ", a step");
    Evidence reader;
    read_profile(path, reader);
    expect_to_fit(findings_text(diagnose(reader), colour), path + ", findings");
  }
}

std::string diff_text(const std::string& a, const std::string& b) {
  DiffSums of_a, of_b;
  read_profile(a, of_a);
  read_profile(b, of_b);
  return render_diff(diff_of(of_a, of_b), {.a = a, .b = b}, DiffFormat::table);
}

TEST(TextWidth, OfRealGpuProfiles) {
  for (const std::string& path : gpu_profiles())
    expect_all_to_fit(path);
  for (const std::string& a : gpu_profiles()) {
    for (const std::string& b : gpu_profiles())
      expect_to_fit(diff_text(a, b), a + " against " + b);
  }
}

TEST(TextWidth, OfAProfileWithALineOfEveryKind) {
  const test::TemporaryDirectory directory;
  const std::string path = (directory.path() / "whole.jsonl").string();
  LaunchTable launches;
  {
    ProfileWriter writer(path, test::whole_profile_header(launches));
    test::write_whole_profile(writer, 12);
  }
  expect_all_to_fit(path);
  expect_to_fit(diff_text(path, path), path);
}

/// A file with the longest possible names and numbers.
ProfileFile overwide_file() {
  const std::string name =
      "an_op_with_a_name_that_is_as_long_as_nobody_would_want_to_read_it_in_a_table_of_a_report_";
  ProfileFile file;
  file.header = test::sample_header();
  file.header.backend = "cuda";
  file.header.device = std::string(90, 'x');
  file.header.memory = {.total_bytes = int64_t{1} << 60,
                        .used_bytes = int64_t{1} << 59,
                        .parts = {{name + " memory", int64_t{1} << 58, int64_t{1} << 58, true}}};
  file.memory_at_end = file.header.memory;
  file.launches = {{.kernel = "kernel<" + name + ", " + name + ">",
                    .path = {},
                    .grid = {1 << 30, 1, 1},
                    .block = {1024, 1, 1}}};
  for (OpInfo& op : file.header.ops)
    op.file_bytes = int64_t{1} << 50;
  file.steps = test::sample_steps(9);
  for (StepSummary& step : file.steps) {
    step.step += 1'000'000'000'000;
    step.on_device = true;
    step.wall_us *= 1e9;
    step.gpu_us *= 1e9;
    step.idle_host_us = step.idle_device_us = 1e9;
    step.batch.shape.prefill_tokens *= 10'000;
    step.host_us.fill(1e9);
    for (OpSummary& op : step.ops) {
      op.op = name + op.op;
      op.us *= 1e9;
      op.bytes *= 1'000'000'000;
      op.launches = {0};
    }
  }
  RangeLine& range = file.ranges.emplace_back();
  range.steps = range.last_step = 1;
  range.kernels = 8;
  range.busy_us = 1e9;
  range.idle.host = {.gaps = 1'000'000'000, .us = 1e12};
  range.idle.ops = {{.op = name, .host = {1'000'000'000, 1e12}, .device = {}, .unknown = {}}};
  range.strangers = {{.kernel = name, .unmatched = 1, .outside = 0}};
  range.attribution.steps = 1;
  range.attribution.ops = {{.op = name,
                            .runs = 1'000'000'000,
                            .stamped_us = 1e15,
                            .kernel_us = 1e15,
                            .own_us = 1e15,
                            .difference_us = 1e15,
                            .own_difference_us = 1e15}};
  CounterWindow window = test::sample_counters();
  window.work[0].ops[0].op = name;
  file.counters = {window};
  return file;
}

TEST(TextWidth, OfNamesAndNumbersLongerThanALine) {
  const ProfileFile file = overwide_file();
  for (const ReportView view : {ReportView::flat, ReportView::top_down, ReportView::bottom_up})
    expect_to_fit(render_report(file, {.view = view, .top = 0}), std::string(name(view)));
  expect_to_fit(render_step(file.steps[1], file.header, false), "a step");
  DiffSums sums;
  sums.header(file.header);
  sums.launch(file.launches[0]);
  for (StepSummary step : file.steps)
    sums.step(step);
  expect_to_fit(render_diff(diff_of(sums, sums), {.a = std::string(200, 'a'), .b = "b"}, DiffFormat::table),
                "a diff");
}

TEST(TextWidth, NothingIsLeftOutOfTheOtherFormats) {
  const ProfileFile file = read_profile(gpu_profiles().back());
  const std::string markdown = render_report(file, {.format = ReportFormat::md});
  EXPECT_NE(
      markdown.find(
          "| op | time% | ms | calls | mean | median | min | max | sd | GB/s | TFLOP/s | roof% | bound |"),
      std::string::npos);
  EXPECT_NE(markdown.find("| gate_up_swiglu: swiglu_kernel<float, __nv_bfloat16, true> |"),
            std::string::npos);
  const std::string csv = render_report(file, {.format = ReportFormat::csv});
  EXPECT_TRUE(csv.starts_with("op,time%,ms,calls,mean,median,min,max,sd,GB/s,TFLOP/s,roof%,bound\n")) << csv;
}

}  // namespace
}  // namespace minfer
