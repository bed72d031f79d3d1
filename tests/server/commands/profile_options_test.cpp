// The files that run and bench write with the profiler's options.
#include <fstream>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/commands_fixture.h"

namespace minfer {
namespace {

using nlohmann::json;
using test::contains;
using test::Outcome;

class ProfileOptionsTest : public test::CommandsFixture {};

/// All lines except readings of the machine, of which there are as many as the run has quarters of a second.
std::vector<json> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    json parsed = json::parse(line);
    if (parsed.at("schema") != "minfer.host/1") lines.push_back(std::move(parsed));
  }
  return lines;
}

TEST_F(ProfileOptionsTest, ProfileRangesAreChecked) {
  for (const char* range : {"4", "4:2", "-1:3", "a:b", "1:2:3", ":", "2:", "1:2x"}) {
    const Outcome outcome = minfer(fmt::format("bench -p 0 -n 4 -r 1 --profile-range={} {}", range, kTiny));
    EXPECT_EQ(outcome.exit_code, 1) << range;
    EXPECT_TRUE(contains(outcome.err, "--profile-range")) << outcome.err;
  }
}

TEST_F(ProfileOptionsTest, AProfileOfARunCanBeReported) {
  ASSERT_EQ(
      minfer(std::string("run x --max-tokens 5 --ignore-eos --profile-out run.jsonl ") + kTiny).exit_code, 0);
  EXPECT_EQ(read_lines(path("run.jsonl")).size(), 1u + 5u + 1u) << "a header, a line a step, the request";
  const Outcome report = minfer("profile report run.jsonl");
  EXPECT_EQ(report.exit_code, 0) << report.err;
  for (const char* op : {"qkv", "gate_up", "attention", "lm_head", "sample"})
    EXPECT_TRUE(contains(report.out, op)) << op;
}

TEST_F(ProfileOptionsTest, AProfileRangeMayHaveAMargin) {
  const Outcome outcome = minfer(
      std::string("bench -p 0 -n 8 -r 1 --profile-range 3:4 --profile-margin 2 --profile-out margin.jsonl ") +
      kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<json> lines = read_lines(path("margin.jsonl"));
  ASSERT_EQ(lines.size(), 1u + 6u + 1u);
  EXPECT_EQ(lines[0].at("header").at("tiers"), json::array({0})) << "a CPU has no kernels to trace";
  EXPECT_EQ(lines[1].at("step"), 1);
  EXPECT_EQ(lines[6].at("step"), 6);
  EXPECT_NE(minfer(std::string("bench -p 0 -n 4 -r 1 --profile-margin 2 ") + kTiny).exit_code, 0);
}

TEST_F(ProfileOptionsTest, AProfileRangeHoldsExactlyItsStepsWithEachLayer) {
  const Outcome outcome =
      minfer(std::string("bench -p 0 -n 8 -r 1 --profile-range 2:4 --profile-out range.jsonl ") + kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::vector<json> lines = read_lines(path("range.jsonl"));
  ASSERT_EQ(lines.size(), 1u + 3u + 1u);
  EXPECT_EQ(lines[4].at("schema"), "minfer.request/1");
  for (size_t i = 0; i < 3; ++i) {
    const json& step = lines[1 + i];
    EXPECT_EQ(step.at("step"), 2 + i);
    std::vector<int> qkv_layers;
    for (const json& op : step.at("layers")) {
      if (op.at("op") == "qkv") qkv_layers.push_back(op.at("layer"));
    }
    EXPECT_EQ(qkv_layers, (std::vector<int>{0, 1}));
  }
}

// The CPU backend has no hardware counters: the terminal and the file say so, and the run continues.
TEST_F(ProfileOptionsTest, CountersThatCannotBeHadAreSaidToBeMissing) {
  const Outcome outcome =
      minfer(std::string("bench -p 0 -n 4 -r 1 --profile-counters --profile-out counters.jsonl ") + kTiny);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "warning: hardware counters")) << outcome.err;
  int64_t steps = 0, errors = 0;
  for (const json& line : read_lines(path("counters.jsonl"))) {
    if (line.at("schema") == "minfer.counters/1" && line.contains("error")) ++errors;
    if (line.contains("step")) ++steps;
  }
  EXPECT_EQ(errors, 1);
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(minfer("profile report counters.jsonl").exit_code, 0);
  EXPECT_EQ(minfer(std::string("serve --profile-counters --profile-counters-every 5 ") + kTiny).exit_code, 2);
}

}  // namespace
}  // namespace minfer
