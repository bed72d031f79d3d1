#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "profiling/json/lines.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/profiling/traced_steps.h"

namespace minfer {
namespace {

using test::JsonSchema;

std::filesystem::path source(const std::string& path) {
  return std::filesystem::path(source_path("")) / path;
}

nlohmann::json load_schema(const std::string& name = "step.schema.json") {
  return nlohmann::json::parse(std::ifstream(source("profiling/json/" + name)));
}

std::string sample_text(ProfileDetail detail) {
  std::string text;
  ProfileHeader header = test::sample_header(detail);
  header.cache_bytes = 50 << 20;
  for (const auto& [name, unit] : kUnitCeilings)
    header.ceilings.*unit = 8000.0;
  header.ceilings.disturbed_runs = 1;
  header.ops.front().fp8_products = true;
  append_header_line(text, header);
  for (KernelLaunch launch : test::sample_launches()) {
    launch.reads_ahead_bytes = launch.path == "cublasLt" ? 0 : 1 << 20;
    append_launch_line(text, 0, launch);
  }
  for (StepSummary step : test::sample_steps(6, detail)) {
    step.batch.constrained_rows = static_cast<int32_t>(step.step);
    step.batch.forced_tokens = step.step == 1 ? 9 : 0;
    step.batch.prefill_budget = static_cast<int32_t>(step.step);
    step.batch.predicted_ns = 1000 * step.step;
    step.batch.drafts = step.step == 1 ? 1 : 0;
    step.batch.draft_tokens = step.step == 1 ? 3 : 0;
    step.batch.disk = {.written = step.step == 1 ? 1 : 0, .hit_tokens = step.step == 1 ? 16 : 0};
    step.host_us[static_cast<size_t>(HostSpan::mask)] = static_cast<double>(step.step);
    append_line(text, step);
  }
  return text;
}

nlohmann::json sample_line(size_t line) {
  std::istringstream lines(sample_text(ProfileDetail::layer));
  std::string text;
  for (size_t i = 0; i <= line; ++i)
    std::getline(lines, text);
  return nlohmann::json::parse(text);
}

TEST(StepSchema, EveryWrittenLineIsValid) {
  const JsonSchema validator(load_schema());
  for (const ProfileDetail detail : {ProfileDetail::op, ProfileDetail::layer}) {
    std::istringstream lines(sample_text(detail));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_EQ(validator.check(nlohmann::json::parse(line)), "") << line;
    EXPECT_EQ(count, 9);
  }
}

// The control: lines that break the schema do not pass.
TEST(StepSchema, WrongLinesAreNot) {
  const JsonSchema validator(load_schema());
  const auto broken = [&](size_t line, const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = sample_line(line);
    json[nlohmann::json::json_pointer(pointer)] = value;
    return !validator.check(json).empty();
  };
  EXPECT_TRUE(broken(0, "/header/tier", 3));
  EXPECT_TRUE(broken(0, "/header/tiers", nlohmann::json::array({0, 3})));
  EXPECT_TRUE(broken(0, "/header/tiers", nlohmann::json::array()));
  EXPECT_TRUE(broken(0, "/header/ops/0/kind", "conv"));
  EXPECT_TRUE(broken(0, "/header/options/threads", 2));
  EXPECT_TRUE(broken(1, "/grid", nlohmann::json::array({1, 1})));
  EXPECT_TRUE(broken(1, "/block", nlohmann::json::array({1, 1, 1, 1})));
  EXPECT_TRUE(broken(1, "/limiter", "luck"));
  EXPECT_TRUE(broken(1, "/reads_ahead_bytes", 0));
  EXPECT_TRUE(broken(0, "/header/cache_bytes", 0));
  EXPECT_TRUE(broken(3, "/schema", "minfer.step/1"));
  EXPECT_TRUE(broken(3, "/step", -1));
  EXPECT_TRUE(broken(3, "/wall_us", "long"));
  EXPECT_TRUE(broken(3, "/attributed", 1.5));
  EXPECT_TRUE(broken(3, "/attributed_by", "faith"));
  EXPECT_TRUE(broken(3, "/idle/host_us", -1.0));
  EXPECT_TRUE(broken(3, "/ops/0/bound", "network"));
  EXPECT_TRUE(broken(3, "/ops/0/calls", 0));
  EXPECT_TRUE(broken(3, "/ops/0/launches", nlohmann::json::array({-1})));
  EXPECT_TRUE(broken(3, "/host_us/nap", 1.0));
  EXPECT_TRUE(broken(3, "/layers", nlohmann::json::array()));
  EXPECT_TRUE(broken(3, "/header", nlohmann::json::object()));
  nlohmann::json without_step = sample_line(3);
  without_step.erase("step");
  EXPECT_NE(validator.check(without_step), "");
}

TEST(StepSchema, MemoryLinesAreValid) {
  const JsonSchema validator(load_schema());
  const MemoryUse memory{.total_bytes = 1000,
                         .used_bytes = 900,
                         .used_before_bytes = 50,
                         .parts = {{"weights", 600, 620, true}, {"staging", 70, 80, false}}};
  ProfileHeader header = test::sample_header();
  header.memory = memory;
  header.asked.counters = true;
  std::string text;
  append_header_line(text, header);
  EXPECT_EQ(validator.check(nlohmann::json::parse(text)), "") << text;
  EXPECT_EQ(nlohmann::json::parse(text)["header"]["tier"], 2);
  EXPECT_EQ(nlohmann::json::parse(text)["header"]["tiers"], nlohmann::json::array({0, 2}));
  text.clear();
  append_memory_line(text, memory, 12'345);
  nlohmann::json line = nlohmann::json::parse(text);
  EXPECT_EQ(validator.check(line), "") << text;
  line["memory"]["parts"][0]["place"] = "attic";
  EXPECT_NE(validator.check(line), "");
  line = nlohmann::json::parse(text);
  line["when"] = "never";
  EXPECT_NE(validator.check(line), "");
}

/// Lines of a traced range, and of one that was impossible.
std::string kernel_text() {
  std::string text;
  RangeTrace failed;
  failed.error = "no libcupti.so";
  for (RangeTrace& range : std::array{test::traced_range(2), failed}) {
    const RangeAnalysis analysis(std::move(range), test::traced_ops());
    append_line(text, analysis.line());
    analysis.for_each_step([&](const StepKernels& step) { append_line(text, step); });
    analysis.for_each_kernel([&](const KernelLine& kernel) { append_line(text, kernel); });
  }
  return text;
}

TEST(KernelSchema, EveryWrittenLineIsValid) {
  const JsonSchema validator(load_schema("kernel.schema.json"));
  std::istringstream lines(kernel_text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_EQ(validator.check(nlohmann::json::parse(line)), "") << line;
  EXPECT_EQ(count, 14);
}

TEST(KernelSchema, WrongLinesAreNot) {
  const JsonSchema validator(load_schema("kernel.schema.json"));
  const auto broken = [&](int line, const char* pointer, const nlohmann::json& value) {
    std::istringstream lines(kernel_text());
    std::string text;
    for (int i = 0; i <= line; ++i)
      std::getline(lines, text);
    nlohmann::json json = nlohmann::json::parse(text);
    json[nlohmann::json::json_pointer(pointer)] = value;
    return !validator.check(json).empty();
  };
  EXPECT_FALSE(broken(0, "/range/dropped", 3));
  EXPECT_TRUE(broken(0, "/range/dropped", -3));
  EXPECT_TRUE(broken(0, "/range/clock", "sundial"));
  EXPECT_TRUE(broken(0, "/range/attribution/ops/0/runs", 0));
  EXPECT_TRUE(broken(0, "/range/more", 1));
  EXPECT_TRUE(broken(0, "/range/idle/device/gaps", 0));
  EXPECT_TRUE(broken(0, "/range/idle/fate", nlohmann::json::object()));
  EXPECT_TRUE(broken(0, "/range/strangers/0/outside", -1));
  EXPECT_TRUE(broken(1, "/traced_step/missing", -1));
  EXPECT_TRUE(broken(1, "/traced_step/more", 1));
  EXPECT_TRUE(broken(1, "/kind", "kernel"));
  EXPECT_TRUE(broken(3, "/kind", "spell"));
  EXPECT_TRUE(broken(3, "/graph", 1));
  EXPECT_TRUE(broken(3, "/us", "long"));
  EXPECT_TRUE(broken(3, "/layer", -2));
  EXPECT_TRUE(broken(3, "/gap_cause", "fate"));
  EXPECT_TRUE(broken(3, "/range", nlohmann::json::object()));
  EXPECT_TRUE(broken(3, "/schema", "minfer.kernel/2"));
}

/// The result of Python's jsonschema for `text`: the exit status of the check.
int python_check(const std::string& schema, const std::string& text) {
  const auto path =
      std::filesystem::temp_directory_path() / ("minfer_schema_" + std::to_string(getpid()) + ".jsonl");
  std::ofstream(path) << text;
  const std::string command = "python3 '" + source("tests/profiling/json/check_schema.py").string() + "' '" +
                              source("profiling/json/" + schema).string() + "' '" + path.string() + "'";
  const int status = std::system(command.c_str());
  std::filesystem::remove(path);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(StepSchema, PythonsValidatorAgrees) {
  const int status = python_check("step.schema.json", sample_text(ProfileDetail::layer));
  if (status == 77 || status == 127) GTEST_SKIP() << "no python3 with jsonschema";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(python_check("kernel.schema.json", kernel_text()), 0);
}

}  // namespace
}  // namespace minfer
