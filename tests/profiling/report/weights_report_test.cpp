// Weights that the device has in another type than the file, and the number of experts that were read: from the header and the
// steps to the report.
#include <algorithm>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "profiling/json/json_reader.h"
#include "profiling/json/lines.h"
#include "profiling/report/report.h"
#include "profiling/report/report_tables.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

constexpr int32_t kExperts = 16, kExpertsUsed = 2;

/// Two layers whose gate_up are products of experts, converted from iq4_xs.
ProfileHeader header_with_experts() {
  ProfileHeader header = test::sample_header();
  for (OpInfo& op : header.ops) {
    if (op.kind != OpKind::gate_up_swiglu) continue;
    op.name = "moe_gate_up_swiglu";
    op.kind = OpKind::moe_gate_up_swiglu;
    op.experts = kExperts;
    op.experts_used = kExpertsUsed;
    op.weight_bytes = 1 << 20;
    op.file_bytes = 1 << 18;
    op.converted = "iq4_xs to bf16";
  }
  return header;
}

/// A step of four decoding tokens in which the layers read `first` and `second` experts.
StepRecord record_that_reads(const ProfileHeader& header, int32_t first, int32_t second) {
  StepRecord record = test::sample_record(0, 4, 0);
  bool is_first = true;
  for (StepStamps::Stamp& stamp : record.stamps.ops) {
    if (header.ops[static_cast<size_t>(stamp.op)].kind != OpKind::moe_gate_up_swiglu) continue;
    stamp.experts_read = is_first ? first : second;
    is_first = false;
  }
  return record;
}

const OpSummary& experts_of(const StepSummary& step) {
  return *std::ranges::find(step.ops, "moe_gate_up_swiglu", &OpSummary::op);
}

StepSummary summary_of_step(const ProfileHeader& header, int32_t first, int32_t second) {
  StepSummariser summariser(header.ops, header.ceilings, ProfileDetail::op);
  return summariser.summarise(record_that_reads(header, first, second));
}

ProfileFile written_and_read(const ProfileHeader& header, const std::vector<StepSummary>& steps) {
  std::string text;
  append_header_line(text, header);
  for (const StepSummary& step : steps)
    append_line(text, step);
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/step.schema.json"))));
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    EXPECT_EQ(schema.check(nlohmann::json::parse(line)), "") << line;
  std::istringstream stream(text);
  return read_profile(stream, "run.jsonl");
}

TEST(ExpertsInReports, BytesAreOfTheExpertsThatWereRead) {
  const ProfileHeader header = header_with_experts();
  const StepSummary known = summary_of_step(header, 3, 5);
  const StepSummary unknown = summary_of_step(header, -1, -1);
  EXPECT_EQ(experts_of(known).experts_read, 8);
  EXPECT_EQ(experts_of(unknown).experts_read, -1);
  EXPECT_EQ(experts_of(unknown).bytes - experts_of(known).bytes, (16 - 8) << 20)
      << "four tokens of two experts";
  EXPECT_EQ(experts_of(summary_of_step(header, 3, -1)).experts_read, -1) << "of one layer it is not known";
  EXPECT_EQ(experts_of(summary_of_step(header, -1, 3)).experts_read, -1);
}

TEST(ExpertsInReports, AreWrittenReadAndTold) {
  const ProfileHeader header = header_with_experts();
  const ProfileFile file =
      written_and_read(header, {summary_of_step(header, 3, 5), summary_of_step(header, -1, -1)});
  EXPECT_EQ(experts_of(file.steps[0]).experts_read, 8);
  EXPECT_EQ(experts_of(file.steps[1]).experts_read, -1);
  EXPECT_EQ(file.steps[0].ops[0].experts_read, -1);
  const std::string text = render_report(file, {});
  EXPECT_NE(text.find("by what the router chose: moe_gate_up_swiglu 4.0\n"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  for (const auto& op : json["ops"]) {
    const bool has_experts = op["op"] == "moe_gate_up_swiglu";
    EXPECT_EQ(op["experts_a_call"], has_experts ? nlohmann::json(4.0) : nlohmann::json()) << op["op"];
  }
}

TEST(ConvertedWeights, BothSizesAreWrittenReadAndTold) {
  const ProfileHeader header = header_with_experts();
  const ProfileFile file = written_and_read(header, {summary_of_step(header, 3, 5)});
  for (size_t i = 0; i < header.ops.size(); ++i) {
    EXPECT_EQ(file.header.ops[i].file_bytes, header.ops[i].file_bytes);
    EXPECT_EQ(file.header.ops[i].converted, header.ops[i].converted);
  }
  const Table table = converted_table(file.header.ops);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0],
            (std::vector<std::string>{"moe_gate_up_swiglu", "iq4_xs to bf16", "2", "0.500", "2.00"}));
  EXPECT_NE(render_report(file, {}).find("another type than the file"), std::string::npos);
  const auto json = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  ASSERT_EQ(json["converted_weights"].size(), 2u);
  EXPECT_EQ(json["converted_weights"][1]["layer"], 1);
  EXPECT_EQ(json["converted_weights"][1]["file_bytes"], 1 << 18);
  EXPECT_EQ(json["converted_weights"][1]["weight_bytes"], 1 << 20);
}

TEST(ConvertedWeights, NothingIsSaidWhereTypesAreKept) {
  const ProfileFile file = written_and_read(test::sample_header(), test::sample_steps(3));
  EXPECT_TRUE(converted_table(file.header.ops).rows.empty());
  const std::string text = render_report(file, {});
  EXPECT_EQ(text.find("another type"), std::string::npos);
  EXPECT_EQ(text.find("router"), std::string::npos);
}

}  // namespace
}  // namespace minfer
