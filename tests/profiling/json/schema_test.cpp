#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <sys/wait.h>
#include <unistd.h>

#include "profiling/json/json_writer.h"
#include "profiling/json/kernel_lines.h"
#include "tests/support/engine/sample_profile.h"
#include "tests/support/engine/traced_steps.h"
#include "tests/support/json_schema.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using Json = nlohmann::json;
using test::JsonSchema;

std::filesystem::path source(const std::string& path) {
  return std::filesystem::path(source_path("")) / path;
}

Json load_schema(const std::string& name = "step.schema.json") {
  return Json::parse(std::ifstream(source("profiling/json/" + name)));
}

std::string sample_text(ProfileDetail detail) {
  std::string text;
  append_header_line(text, test::sample_header(detail));
  for (const KernelLaunch& launch : test::sample_launches())
    append_launch_line(text, 0, launch);
  for (const StepSummary& step : test::sample_steps(6, detail))
    append_step_line(text, step);
  return text;
}

Json sample_line(size_t line) {
  std::istringstream lines(sample_text(ProfileDetail::layer));
  std::string text;
  for (size_t i = 0; i <= line; ++i)
    std::getline(lines, text);
  return Json::parse(text);
}

TEST(StepSchema, EveryWrittenLineIsValid) {
  const JsonSchema validator(load_schema());
  for (const ProfileDetail detail : {ProfileDetail::op, ProfileDetail::layer}) {
    std::istringstream lines(sample_text(detail));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_EQ(validator.check(Json::parse(line)), "") << line;
    EXPECT_EQ(count, 9);
  }
}

// The control: what is not as the schema says does not pass.
TEST(StepSchema, WrongLinesAreNot) {
  const JsonSchema validator(load_schema());
  const auto broken = [&](size_t line, const char* pointer, const Json& value) {
    Json json = sample_line(line);
    json[Json::json_pointer(pointer)] = value;
    return !validator.check(json).empty();
  };
  EXPECT_TRUE(broken(0, "/header/tier", 1));
  EXPECT_TRUE(broken(0, "/header/ops/0/kind", "conv"));
  EXPECT_TRUE(broken(0, "/header/options/threads", 2));
  EXPECT_TRUE(broken(1, "/grid", Json::array({1, 1})));
  EXPECT_TRUE(broken(1, "/block", Json::array({1, 1, 1, 1})));
  EXPECT_TRUE(broken(1, "/limiter", "luck"));
  EXPECT_TRUE(broken(3, "/schema", "minfer.step/1"));
  EXPECT_TRUE(broken(3, "/step", -1));
  EXPECT_TRUE(broken(3, "/wall_us", "long"));
  EXPECT_TRUE(broken(3, "/attributed", 1.5));
  EXPECT_TRUE(broken(3, "/attributed_by", "faith"));
  EXPECT_TRUE(broken(3, "/idle/host_us", -1.0));
  EXPECT_TRUE(broken(3, "/ops/0/bound", "network"));
  EXPECT_TRUE(broken(3, "/ops/0/calls", 0));
  EXPECT_TRUE(broken(3, "/ops/0/launches", Json::array({-1})));
  EXPECT_TRUE(broken(3, "/host_us/nap", 1.0));
  EXPECT_TRUE(broken(3, "/layers", Json::array()));
  EXPECT_TRUE(broken(3, "/header", Json::object()));
  Json without_step = sample_line(3);
  without_step.erase("step");
  EXPECT_NE(validator.check(without_step), "");
}

/// Lines of a traced range, and of one that could not be.
std::string kernel_text() {
  std::string text;
  RangeTrace failed;
  failed.error = "no libcupti.so";
  for (RangeTrace& range : std::array{test::traced_range(2), failed}) {
    const RangeAnalysis analysis(std::move(range), test::traced_ops());
    append_range_line(text, analysis.line());
    analysis.for_each_kernel([&](const KernelLine& kernel) { append_kernel_line(text, kernel); });
  }
  return text;
}

TEST(KernelSchema, EveryWrittenLineIsValid) {
  const JsonSchema validator(load_schema("kernel.schema.json"));
  std::istringstream lines(kernel_text());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count)
    EXPECT_EQ(validator.check(Json::parse(line)), "") << line;
  EXPECT_EQ(count, 12);
}

TEST(KernelSchema, WrongLinesAreNot) {
  const JsonSchema validator(load_schema("kernel.schema.json"));
  const auto broken = [&](int line, const char* pointer, const Json& value) {
    std::istringstream lines(kernel_text());
    std::string text;
    for (int i = 0; i <= line; ++i)
      std::getline(lines, text);
    Json json = Json::parse(text);
    json[Json::json_pointer(pointer)] = value;
    return !validator.check(json).empty();
  };
  EXPECT_FALSE(broken(0, "/range/dropped", 3));
  EXPECT_TRUE(broken(0, "/range/dropped", -3));
  EXPECT_TRUE(broken(0, "/range/clock", "sundial"));
  EXPECT_TRUE(broken(0, "/range/attribution/ops/0/runs", 0));
  EXPECT_TRUE(broken(0, "/range/more", 1));
  EXPECT_TRUE(broken(1, "/kind", "spell"));
  EXPECT_TRUE(broken(1, "/graph", 1));
  EXPECT_TRUE(broken(1, "/us", "long"));
  EXPECT_TRUE(broken(1, "/layer", -2));
  EXPECT_TRUE(broken(1, "/range", Json::object()));
  EXPECT_TRUE(broken(1, "/schema", "minfer.kernel/2"));
}

/// What Python's jsonschema says of `text`: the exit status of the check.
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
