// `minfer profile trace` as a command.
#include <fstream>
#include <sstream>

#include <gmock/gmock.h>

#include "kernels/error.h"
#include "profiling/json/json_writer.h"
#include "server/commands/commands.h"
#include "tests/support/engine/sample_profile.h"
#include "tests/support/parsed_trace.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

using testing::HasSubstr;

class ProfileTraceCommand : public testing::Test {
 protected:
  ProfileTraceCommand() {
    append_header_line(profile_, test::sample_header());
    for (const StepSummary& step : test::sample_steps(9))
      append_step_line(profile_, step);
    std::ofstream(path("run.jsonl")) << profile_;
  }

  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  /// What `minfer profile trace run.jsonl arguments` prints.
  std::string trace(const std::string& arguments) const {
    CLI::App app;
    add_profile_command(app);
    testing::internal::CaptureStdout();
    try {
      app.parse("profile trace " + path("run.jsonl") + " " + arguments);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }
  std::string refusal(const std::string& arguments) const {
    try {
      trace(arguments);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  std::string text_of(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path(name), std::ios::binary).rdbuf();
    return text.str();
  }

  const test::TemporaryDirectory directory_;
  std::string profile_;
};

TEST_F(ProfileTraceCommand, WritesATrace) {
  EXPECT_THAT(trace("-o " + path("trace.json")), HasSubstr("trace.json: 9 steps, 0 kernels and copies"));
  const test::ParsedTrace written(text_of("trace.json"));
  written.expect_sound();
  EXPECT_FALSE(written.slices.empty());
  trace("-o " + path("trace.json.gz"));
  EXPECT_EQ(text_of("trace.json.gz").substr(0, 2), "\x1f\x8b");
}

TEST_F(ProfileTraceCommand, FiltersReachTheTrace) {
  const std::string out = "-o " + path("trace.json");
  EXPECT_THAT(trace(out + " --steps 2:4"), HasSubstr(": 3 steps,"));
  EXPECT_THAT(trace(out + " --phase mixed"), HasSubstr(": 3 steps,"));
  EXPECT_THAT(trace(out + " --steps 0:0"), HasSubstr(": 1 steps,"));
}

TEST_F(ProfileTraceCommand, WhatCannotBeIsRefusedBeforeTheOutputIsTouched) {
  const std::string out = "-o " + path("trace.json");
  for (const char* range : {"4", "4:2", "-1:3", "a:b", "1:2:3", ":", "2:", "1:2x"})
    EXPECT_THAT(refusal(out + " --steps=" + range), HasSubstr("--steps")) << range;
  EXPECT_THAT(refusal(out + " --steps 50:60"), HasSubstr("9 steps from 0 to 8"));
  EXPECT_THAT(refusal(out + " --request nobody"), HasSubstr("no step is left"));
  EXPECT_THAT(refusal("-o " + path("run.jsonl")), HasSubstr("is the profile itself"));
  EXPECT_EQ(text_of("run.jsonl"), profile_);
  EXPECT_FALSE(std::filesystem::exists(path("trace.json")));
  EXPECT_THROW(trace(""), CLI::ParseError);
  EXPECT_THROW(trace(out + " --phase warmup"), CLI::ParseError);
  EXPECT_THROW(trace("-o " + path("no/such/folder.json")), FileError);
}

TEST_F(ProfileTraceCommand, AProfileWithoutAStepIsAnError) {
  std::ofstream(path("run.jsonl")) << profile_.substr(0, profile_.find('\n') + 1);
  EXPECT_THAT(refusal("-o " + path("trace.json")), HasSubstr("holds no step"));
  std::ofstream(path("run.jsonl")) << "";
  EXPECT_THAT(refusal("-o " + path("trace.json")), HasSubstr("the header of a profile"));
}

}  // namespace
}  // namespace minfer
