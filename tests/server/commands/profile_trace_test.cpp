// `minfer profile trace` as a command.
#include <gmock/gmock.h>

#include "tests/support/profiling/parsed_trace.h"
#include "tests/support/server/profile_command.h"

namespace minfer {
namespace {

using testing::HasSubstr;

class ProfileTraceCommand : public test::ProfileCommandTest {
 protected:
  ProfileTraceCommand() : ProfileCommandTest("trace") {}
};

TEST_F(ProfileTraceCommand, WritesATrace) {
  EXPECT_THAT(run("-o " + path("trace.json")), HasSubstr("trace.json: 9 steps, 0 kernels and copies"));
  const test::ParsedTrace written(text_of("trace.json"));
  written.expect_sound();
  EXPECT_FALSE(written.slices.empty());
  run("-o " + path("trace.json.gz"));
  EXPECT_EQ(text_of("trace.json.gz").substr(0, 2), "\x1f\x8b");
}

TEST_F(ProfileTraceCommand, FiltersReachTheTrace) {
  const std::string out = "-o " + path("trace.json");
  EXPECT_THAT(run(out + " --steps 2:4"), HasSubstr(": 3 steps,"));
  EXPECT_THAT(run(out + " --phase mixed"), HasSubstr(": 3 steps,"));
  EXPECT_THAT(run(out + " --steps 0:0"), HasSubstr(": 1 steps,"));
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
  EXPECT_THROW(run(""), CLI::ParseError);
  EXPECT_THROW(run(out + " --phase warmup"), CLI::ParseError);
  EXPECT_THROW(run("-o " + path("no/such/folder.json")), FileError);
}

TEST_F(ProfileTraceCommand, AProfileWithoutAStepIsAnError) {
  write_text(profile_.substr(0, profile_.find('\n') + 1));
  EXPECT_THAT(refusal("-o " + path("trace.json")), HasSubstr("holds no step"));
  write_text("");
  EXPECT_THAT(refusal("-o " + path("trace.json")), HasSubstr("the header of a profile"));
}

}  // namespace
}  // namespace minfer
