// Trials of a recorded load: from the line in its profile to the finding that it belongs to, and to the pairs from which estimates
// are fitted.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "kernels/base/error.h"
#include "profiling/findings/evidence.h"
#include "profiling/json/lines.h"
#include "profiling/report/report.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/every_reader.h"
#include "tests/support/profiling/report_of_file.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::HasSubstr;
using testing::Not;

KeptTrial slots(double median) {
  return {.option = "--max-num-seqs 16",
          .beside = "--threads 2",
          .finding = "batch too small",
          .figure = "busy_s",
          .is_fitted = true,
          .estimated = 0.4,
          .estimated_from = 0.35,
          .estimated_to = 0.5,
          .gain = {.median = median, .least = median - 0.05, .most = median + 0.05, .turns = 3},
          .error = "",
          .device = "NVIDIA H200",
          .date = "2026-11-28"};
}

std::string file_text(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// A profile whose first finding is "batch too small", with lines behind its own.
std::string profile_with(std::initializer_list<KeptTrial> trials) {
  std::string text = file_text(source_path("tests/benchmarks/results/planted-h200/batch-too-small.jsonl"));
  for (const KeptTrial& trial : trials)
    append_line(text, trial);
  return text;
}

Diagnosis diagnosis_with(std::initializer_list<KeptTrial> trials) {
  std::istringstream stream(profile_with(trials));
  Evidence reader;
  read_profile(stream, "run.jsonl", reader);
  return diagnose(reader);
}

TEST(TrialLines, ReadBackAsWrittenAndAsTheSchemaSays) {
  KeptTrial trial = slots(-0.25);
  trial.error = "out of memory";
  std::string line;
  append_line(line, trial);
  const test::JsonSchema schema(
      nlohmann::json::parse(std::ifstream(source_path("profiling/json/trial.schema.json"))));
  EXPECT_EQ(schema.check(nlohmann::json::parse(line)), "");
  std::istringstream stream(profile_with({trial}));
  const ProfileFile file = read_profile(stream, "run.jsonl");
  ASSERT_EQ(file.trials.size(), 1u);
  std::string again;
  append_line(again, file.trials.front());
  EXPECT_EQ(again, line);
  EXPECT_EQ(test::read_everywhere(profile_with({trial, slots(0.3)})), "");
  nlohmann::json wrong = nlohmann::json::parse(line);
  wrong["median"] = 1.5;
  std::istringstream broken(profile_with({}) + wrong.dump() + "\n");
  EXPECT_THROW(read_profile(broken, "run.jsonl"), FileError);
}

TEST(KeptTrials, StandBesideTheFindingAndTheNewestCounts) {
  const Diagnosis diagnosis = diagnosis_with({slots(0.2), slots(0.31)});
  const Finding& finding = diagnosis.findings.front();
  ASSERT_EQ(finding.rule, "batch too small");
  ASSERT_EQ(finding.measured.size(), 1u);
  EXPECT_EQ(finding.measured.front().gain.median, 0.31);
  const char* measured =
      "--max-num-seqs 16 beside --threads 2: 26 to 36 % (3 turns) of the time with work, 2026-11-28";
  std::string text = findings_text(diagnosis, false);
  std::ranges::replace(text, '\n', ' ');
  EXPECT_THAT(text, HasSubstr(" Measured: --max-num-seqs 16 beside --threads 2: 26 to 36 % (3 turns)"));
  EXPECT_THAT(findings_markdown(diagnosis), HasSubstr(fmt::format(" Measured: {}.", measured)));
  std::string out;
  JsonText writer(out);
  write_findings(writer, diagnosis);
  const nlohmann::json kept = nlohmann::json::parse(out).at("findings").at(0).at("measured");
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].at("text"), measured);
  EXPECT_EQ(kept[0].at("median"), 0.31);
  EXPECT_EQ(kept[0].at("device"), "NVIDIA H200");
  EXPECT_EQ(findings_text(diagnosis_with({}), false).find("Measured"), std::string::npos);
}

TEST(KeptTrials, OneThatNoFindingAdvisedStandsWhereItsOptionIsAdvised) {
  KeptTrial tuned = slots(0.2), other = slots(0.3);
  tuned.finding = other.finding = "";
  tuned.figure = "goodput";
  other.option = "--stream-interval 8";
  const Diagnosis diagnosis = diagnosis_with({tuned, other});
  ASSERT_EQ(diagnosis.findings.front().measured.size(), 1u);
  EXPECT_THAT(diagnosis.findings.front().measured.front().text(), HasSubstr("of the goodput"));
}

TEST(KeptTrials, AFindingWhoseAdviceHelpedIsShownHoweverLittleWasEstimated) {
  const Diagnosis without = diagnosis_with({});
  const Finding& least = without.findings.back();
  ASSERT_LT(least.weight(), kHealthyGain);
  EXPECT_THAT(findings_text(without, false), Not(HasSubstr(fmt::format("{}: ", least.rule))));
  KeptTrial helped = slots(0.3), lost = slots(-0.3);
  helped.finding = lost.finding = least.rule;
  EXPECT_THAT(findings_text(diagnosis_with({helped}), false), HasSubstr(fmt::format(". {}: ", least.rule)));
  EXPECT_THAT(findings_text(diagnosis_with({lost}), false),
              Not(HasSubstr(fmt::format(". {}: ", least.rule))));
}

TEST(KeptTrials, TheReportHasThem) {
  std::istringstream stream(profile_with({slots(0.31)}));
  const ProfileFile file = read_profile(stream, "run.jsonl");
  EXPECT_THAT(render_report(file, {}), HasSubstr("Measured: --max-num-seqs 16"));
  const nlohmann::json report = nlohmann::json::parse(render_report(file, {.format = ReportFormat::json}));
  EXPECT_EQ(report.at("findings").at("findings").at(0).at("measured").at(0).at("turns"), 3);
}

TEST(KeepPairs, AddsTheBestOptionOfEachFindingOnce) {
  const test::TemporaryDirectory directory;
  const std::filesystem::path root = directory.path();
  for (const char* folder : {"profiling/findings", "tests/benchmarks/results"})
    std::filesystem::create_directories(root / folder);
  KeptTrial more = slots(0.45), failed = slots(0.0), tuned = slots(0.9);
  more.option = "--max-num-seqs 32";
  failed.option = "--max-num-seqs 64";
  failed.gain = {};
  tuned.option = "--threads 4";
  tuned.finding = "";
  std::ofstream(root / "run.jsonl") << profile_with({slots(0.2), slots(0.31), more, failed, tuned});
  const std::string command =
      fmt::format("python3 {} --root {} {}", source_path("scripts/profiles/keep_pairs.py"), root.string(),
                  (root / "run.jsonl").string());
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(std::system((command + " >" + (root / "said").string()).c_str()), 0);
  EXPECT_EQ(file_text(root / "profiling/findings/measured_pairs.inc"),
            "    {\"batch too small\", true, true, 0.4, 0.45},\n");
  const nlohmann::json row =
      nlohmann::json::parse(file_text(root / "tests/benchmarks/results/tried-pairs.jsonl"));
  EXPECT_EQ(row.at("option"), "--max-num-seqs 32");
  EXPECT_EQ(row.at("estimated_range"), nlohmann::json::parse("[0.35, 0.5]"));
}

}  // namespace
}  // namespace minfer
