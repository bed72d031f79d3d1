#include "profiling/report/report.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiling/text/table.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

ProfileFile sample_file(int64_t steps = 30) {
  ProfileFile file;
  file.header = test::sample_header();
  file.steps = test::sample_steps(steps);
  return file;
}

std::string report(ReportFormat format, ReportOptions options = {}) {
  options.format = format;
  return render_report(sample_file(), options);
}

// Compares with tests/profiling/golden/NAME; with MINFER_UPDATE_GOLDEN set, writes it instead.
void expect_golden(const std::string& text, const std::string& name) {
  const auto path = std::filesystem::path(source_path("")) / "tests" / "profiling" / "golden" / name;
  if (std::getenv("MINFER_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text;
    GTEST_SKIP() << "wrote " << path;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path;
  std::stringstream content;
  content << file.rdbuf();
  EXPECT_EQ(text, content.str());
}

size_t widest_line(const std::string& text) {
  size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    widest = std::max(widest, display_width(line));
  return widest;
}

TEST(Report, Table) {
  expect_golden(report(ReportFormat::table), "report.txt");
}
TEST(Report, Markdown) {
  expect_golden(report(ReportFormat::md), "report.md");
}
TEST(Report, Csv) {
  expect_golden(report(ReportFormat::csv), "report.csv");
}
TEST(Report, StepPicture) {
  const ProfileFile file = sample_file();
  expect_golden(render_step(file.steps[1], file.header, false), "step.txt");
}

TEST(Report, JsonHasTheDraftsThatTheTextHas) {
  ProfileFile file = sample_file();
  EXPECT_EQ(nlohmann::json::parse(render_report(file, {.format = ReportFormat::json})).at("drafts").size(),
            0u);
  EXPECT_EQ(render_report(file, {}).find("Draft tokens by context"), std::string::npos);
  for (StepSummary& step : file.steps) {
    BatchShape& shape = step.batch.shape;
    if (shape.decode_sequences == 0) continue;
    shape.decode_tokens = 3 * shape.decode_sequences;
    step.batch.drafts = shape.decode_sequences;
    step.batch.draft_tokens = 2 * shape.decode_sequences;
    step.batch.accepted_tokens = shape.decode_sequences;
  }
  const auto drafts = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json})).at("drafts");
  ASSERT_FALSE(drafts.empty());
  for (const auto& use : drafts) {
    EXPECT_EQ(use.at("proposed"), 2 * use.at("sequences").get<int64_t>());
    EXPECT_EQ(use.at("accepted"), use.at("sequences"));
    EXPECT_EQ(use.at("checked"), 3 * use.at("sequences").get<int64_t>());
    EXPECT_EQ(use.at("measured"), false);
    for (const char* field : {"phase", "from_context", "steps", "us", "draft_us", "without_us"})
      EXPECT_TRUE(use.contains(field)) << field;
  }
  EXPECT_NE(render_report(file, {}).find("Draft tokens by context"), std::string::npos);
}

TEST(Report, TellsOfBlocksOnDisk) {
  ProfileFile file = sample_file();
  EXPECT_EQ(render_report(file, {}).find("on disk"), std::string::npos);
  file.steps[1].batch.disk = {.written = 5, .read = 2, .hit_tokens = 32, .read_ns = 1'000'000};
  file.steps[4].batch.disk = {.read = 2, .dropped = 3, .hit_tokens = 32, .read_ns = 3'000'000};
  EXPECT_NE(render_report(file, {}).find("KV blocks on disk: 5 written, 4 read (64 prompt tokens, 1.00 ms a"),
            std::string::npos);
}

TEST(Report, MasksHaveAColumnWhereThereAreGrammars) {
  ProfileFile file = sample_file();
  EXPECT_EQ(render_report(file, {}).find("commit mask"), std::string::npos);
  for (StepSummary& step : file.steps)
    step.host_us[static_cast<size_t>(HostSpan::mask)] = 0.5 * step.wall_us;
  const std::string text = render_report(file, {});
  EXPECT_NE(text.find("commit mask"), std::string::npos) << text;
  EXPECT_NE(text.find(" 50.0 "), std::string::npos) << text;
}

TEST(Report, FitsATerminal) {
  ProfileFile file = sample_file();
  file.header.device = std::string(40, 'x') + " " + std::string(60, 'y');
  for (StepSummary& step : file.steps) {
    step.step += 1'000'000'000;
    step.wall_us *= 1e5;
    step.gpu_us *= 1e5;
    step.batch.shape.prefill_tokens *= 1'000;
    step.host_us.fill(1'000.0);
    for (OpSummary& op : step.ops) {
      op.op = "a_very_long_name_of_an_operation_" + op.op;
      op.calls *= 1'000;
      op.us *= 1e5;
    }
  }
  EXPECT_LE(widest_line(render_report(file, {})), kTextColumns);
  EXPECT_LE(widest_line(render_step(file.steps[1], file.header, false)), kTextColumns);
}

TEST(Report, JsonHoldsTheSameNumbers) {
  const Aggregate sum = aggregate(sample_file().steps);
  const nlohmann::json json = nlohmann::json::parse(report(ReportFormat::json, {.top = 2}));
  EXPECT_EQ(json["schema"], "minfer.report/1");
  EXPECT_EQ(json["all"]["steps"], 30);
  EXPECT_DOUBLE_EQ(json["all"]["wall_us"].get<double>(), sum.all.wall_us);
  EXPECT_DOUBLE_EQ(json["decode"]["us"].get<double>(), sum.decode.us);
  ASSERT_EQ(json["ops"].size(), 2u);
  EXPECT_EQ(json["ops"][0]["op"], sum.ops[0].op);
  EXPECT_DOUBLE_EQ(json["ops"][0]["roofline"].get<double>(), sum.ops[0].roofline());
  EXPECT_EQ(json["slowest"].size(), 5u);
  EXPECT_EQ(json["by_phase"].size(), 3u);
}

TEST(Report, PhaseFilterAndTop) {
  const std::string text = report(ReportFormat::table, {.top = 3, .filter = {.phase = StepPhase::decode}});
  EXPECT_NE(text.find("30 recorded, 0 dropped; below: the 10 decode ones"), std::string::npos) << text;
  EXPECT_EQ(text.find("attention_prefill"), std::string::npos);
  EXPECT_NE(text.find("3 more ops: --top 0 lists all"), std::string::npos) << text;
}

TEST(Report, ColoursOnlyWhenAskedFor) {
  EXPECT_EQ(report(ReportFormat::table).find('\x1b'), std::string::npos);
  EXPECT_NE(report(ReportFormat::table, {.colour = true}).find('\x1b'), std::string::npos);
  EXPECT_EQ(report(ReportFormat::md, {.colour = true}).find('\x1b'), std::string::npos);
  const ProfileFile file = sample_file();
  EXPECT_EQ(render_step(file.steps[0], {}, false).find('\x1b'), std::string::npos);
  EXPECT_NE(render_step(file.steps[0], {}, true).find('\x1b'), std::string::npos);
}

TEST(Report, NothingToReportIsAnError) {
  EXPECT_THROW(render_report(sample_file(0), {}), Error);
  EXPECT_THROW(render_report(sample_file(1), {.filter = {.phase = StepPhase::mixed}}), Error);
}

TEST(Report, SaysTheCeilingOfFp8ProductsWhereOpsHaveThem) {
  ProfileFile file = sample_file();
  const auto in_markdown = [&] { return render_report(file, {.format = ReportFormat::md}); };
  const auto in_json = [&] {
    return nlohmann::json::parse(
        render_report(file, {.format = ReportFormat::json}))["ceilings"]["fp8_gflops"];
  };
  EXPECT_EQ(in_markdown().find("GFLOP/s fp8"), std::string::npos);
  EXPECT_EQ(in_json(), 0.0);
  file.header.ceilings.fp8_gflops = 7654.3;
  EXPECT_NE(in_markdown().find("200.0 GB/s read, 4000.0 GFLOP/s f32, 7654.3 GFLOP/s fp8\n"),
            std::string::npos);
  EXPECT_EQ(in_json(), 7654.3);
  EXPECT_NE(render_report(file, {}).find("7654.3"), std::string::npos);
  EXPECT_NE(render_step(file.steps[1], file.header, false).find("7654.3"), std::string::npos);
}

TEST(Report, SaysWhatItDoesNotKnow) {
  ProfileFile file = sample_file(0);
  file.note = "the file ends within line 4: its 9 bytes are left out";
  file.header.ceilings = {};
  StepSummariser summariser(file.header.ops, {}, ProfileDetail::op);
  file.steps.push_back(summariser.summarise(test::sample_record(0, 4, 0)));
  const std::string text = render_report(file, {});
  EXPECT_NE(text.find("ceilings not measured: no roofline"), std::string::npos);
  EXPECT_NE(text.find("note: the file ends within line 4"), std::string::npos);
}

TEST(Report, SaysWhoseClockTimedTheOpsAndWhatThatHides) {
  ProfileFile file = sample_file();
  const auto says = [&](const std::string& backend, const std::string& words) {
    file.header.backend = backend;
    for (StepSummary& step : file.steps)
      step.on_device = backend == "cuda";  // and in graphs: only their begins are stamped
    std::string text = render_report(file, {.format = ReportFormat::md});
    return text.find(words) != std::string::npos;
  };
  for (const std::string words : {"tier 0 (device stamps)", "the device's idle time between them"}) {
    EXPECT_TRUE(says("cuda", words)) << words;
    EXPECT_FALSE(says("cpu", words)) << words;
  }
  EXPECT_TRUE(says("cpu", "tier 0 (host clocks)"));
}

/// Steps 0 and 1 with kernels that cover 90 and 80 % of them.
ProfileFile traced_file() {
  ProfileFile file = sample_file(3);
  file.header.backend = "cuda";
  for (StepSummary& step : file.steps) {
    step.on_device = true;
    step.attributed = 0.99;
  }
  for (size_t step = 0; step < 2; ++step) {
    file.steps[step].wall_us = 100.0;
    file.steps[step].kernels = {.kernels = 4, .attributed_us = step == 0 ? 90.0 : 80.0};
  }
  file.steps[2].kernels = {.kernels = 3, .missing = 1, .attributed_us = 1.0};
  return file;
}

TEST(Report, AttributedComesFromKernelsWhereAllWereSeen) {
  const ProfileFile file = traced_file();
  const Aggregate sum = aggregate(file.steps);
  EXPECT_EQ(sum.attributed_by.at("kernels"), 2);
  EXPECT_EQ(sum.attributed_by.at("begin stamps"), 1) << "one launch of it has no kernel";
  EXPECT_DOUBLE_EQ(sum.least_attributed, 0.8);
  EXPECT_NEAR(sum.attributed, (90.0 + 80.0 + 0.99 * file.steps[2].wall_us) / sum.all.wall_us, 1e-12);
  const std::string text = render_report(file, {.format = ReportFormat::md});
  EXPECT_NE(text.find("80.0 % of the worst step's; by begin stamps (1 step), kernels (2 steps)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("includes the device's idle time between them"), std::string::npos)
      << "the ops' times are still those";
}

TEST(Report, NamesTheTiersThatGaveData) {
  ProfileFile file = traced_file();
  const auto says = [&](const std::string& words) {
    return render_report(file, {.format = ReportFormat::md}).find(words) != std::string::npos;
  };
  EXPECT_TRUE(says("profiler tier 0 (device stamps)\n"));
  file.header.asked = {.kernels = true, .counters = true};
  EXPECT_TRUE(
      says("tier 0 (device stamps); asked for without a result: 1 (kernels), 2 (hardware counters)\n"));
  file.ranges.emplace_back().error = "CUPTI is held by nsys";
  file.counters.emplace_back().error = "error 35";
  EXPECT_TRUE(says("without a result: 1 (kernels), 2 (hardware counters)\n"));
  RangeLine& range = file.ranges.emplace_back();
  range.last_step = 1;
  range.steps = 2;
  range.kernels = 8;
  EXPECT_TRUE(says("tier 0 (device stamps), 1 (kernels of steps 0 to 1); asked for without a result: 2"));
  file.counters.emplace_back();
  EXPECT_TRUE(says("tier 0 (device stamps), 1 (kernels of steps 0 to 1), 2 (hardware counters, 1 window)\n"));
  const nlohmann::json json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_EQ(json["tier"], 2);
  EXPECT_EQ(json["tiers"]["asked"], nlohmann::json::array({0, 1, 2}));
  EXPECT_EQ(json["tiers"]["gave"], nlohmann::json::array({0, 1, 2}));
  EXPECT_TRUE(json["memory"]["end"].is_null());
}

TEST(Report, ShowsTheMemoryAtBothEnds) {
  ProfileFile file = traced_file();
  file.header.memory = {.total_bytes = 1000 << 20,
                        .used_bytes = 800 << 20,
                        .used_before_bytes = 100 << 20,
                        .parts = {{"weights", 600 << 20, 610 << 20, true}}};
  const auto has = [&](const std::string& row) {
    return render_report(file, {.format = ReportFormat::md}).find(row) != std::string::npos;
  };
  EXPECT_TRUE(has("| weights | 600.0 | 75.0 | - | 610.0 | device |")) << "the file was cut";
  file.memory_at_end = file.header.memory;
  file.memory_at_end.used_bytes = 900 << 20;
  file.memory_at_end.parts = {{"weights", 600 << 20, 620 << 20, true}, {"graphs", 50 << 20, 60 << 20, true}};
  EXPECT_TRUE(has("| weights | 600.0 | 75.0 | 600.0 | 620.0 | device |"));
  EXPECT_TRUE(has("| graphs | 0.0 | 0.0 | 50.0 | 60.0 | device |"));
  EXPECT_TRUE(has("| (not explained) | 100.0 | 12.5 | 150.0 | - | device |"));
  EXPECT_TRUE(has("| used of 1000.0 MiB | 800.0 | 100.0 | 900.0 | - | device |"));
}

TEST(Table, CutsTheFirstColumnByCharacters) {
  const Table table{"T", {"name", "n"}, {{"ééééééééééééé", "12"}, {"a", "3"}}};
  EXPECT_EQ(text_table(table, 12), "T\nname       n\néééééééé… 12\na          3\n");
  EXPECT_EQ(text_table(table, 100), "T\nname           n\nééééééééééééé 12\na              3\n");
}

TEST(Table, WrapsLongNamesInFrontOfTheirRow) {
  const Table table{"T", {"name", "n"}, {{"one two three four", "12"}, {"a", "3"}}};
  EXPECT_EQ(text_table(table, 14, LongNames::wrap),
            "T\nname         n\none two three\n  four\n            12\na            3\n");
}

TEST(Table, ColumnsBeyondTheWidthFollow) {
  const Table table{"T", {"name", "one", "two"}, {{"a", "1111111", "2222222"}}};
  EXPECT_EQ(text_table(table, 16, LongNames::wrap),
            "T\nname     one\na    1111111\nname     two\na    2222222\n");
  EXPECT_EQ(text_table(table, 20), "T\nname     one     two\na    1111111 2222222\n");
  const Table wide{"T", {"name", "one"}, {{"a", std::string(30, '1')}}};
  EXPECT_LE(widest_line(text_table(wide, 20)), 20u);
}

TEST(Table, WhatBelongsBelowARowStandsInItsCellElsewhere) {
  const Table table{"T", {"op", "n"}, {{"qkv", "1"}, {"sample", "2"}}, {"kernel<1, 2>", ""}};
  EXPECT_EQ(text_table(table, 80), "T\nop     n\nqkv    1\n  kernel<1, 2>\nsample 2\n");
  EXPECT_EQ(csv_table(table), "op,n\n\"qkv: kernel<1, 2>\",1\nsample,2\n");
  EXPECT_NE(markdown_table(table).find("| qkv: kernel<1, 2> | 1 |"), std::string::npos);
}

TEST(Table, ColoursTakeNoColumn) {
  EXPECT_EQ(display_width("\x1b[1mé\x1b[0m!"), 2u);
  EXPECT_EQ(bold_if(false, "a"), "a");
  EXPECT_EQ(display_width(bold_if(true, "a")), 1u);
}

TEST(Table, QuotesCellsOfCsvAndMarkdown) {
  const Table table{"T", {"a,b", "n"}, {{"say \"x|y\"", "1"}}};
  EXPECT_EQ(csv_table(table), "\"a,b\",n\n\"say \"\"x|y\"\"\",1\n");
  EXPECT_EQ(markdown_table(table), "### T\n\n| a,b | n |\n|:---|---:|\n| say \"x\\|y\" | 1 |\n");
}

TEST(Table, ThreeDigits) {
  EXPECT_EQ(three_digits(0.0), "0");
  EXPECT_EQ(three_digits(0.01234), "0.0123");
  EXPECT_EQ(three_digits(0.1234), "0.123");
  EXPECT_EQ(three_digits(9.994), "9.99");
  EXPECT_EQ(three_digits(9.996), "10.0");
  EXPECT_EQ(three_digits(99.96), "100");
  EXPECT_EQ(three_digits(12345.6), "12346");
}

TEST(Table, WrapsAtBlanks) {
  EXPECT_EQ(wrapped("one two three", 100), "one two three");
  EXPECT_EQ(wrapped("one two three", 7), "one two\n  three");
  EXPECT_EQ(wrapped("one two three", 7, 0), "one two\nthree");
  EXPECT_EQ(wrapped("a unbreakable", 6), "a\n  unbr\n  eaka\n  ble") << "a word wider than a line";
  EXPECT_EQ(wrapped("éééé", 3), "ééé\n  é");
  EXPECT_EQ(wrapped("", 4), "");
}

}  // namespace
}  // namespace minfer
