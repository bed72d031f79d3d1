#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "kernels/error.h"
#include "profiling/json/json_writer.h"
#include "server/commands/commands.h"
#include "tests/support/engine/sample_profile.h"

namespace minfer {
namespace {

class ProfileCommand : public testing::Test {
 protected:
  ProfileCommand() {
    std::string text;
    append_header_line(text, test::sample_header());
    for (const StepSummary& step : test::sample_steps(9))
      append_step_line(text, step);
    std::ofstream(path) << text;
  }
  ~ProfileCommand() override { std::filesystem::remove(path); }

  // What `minfer profile report FILE arguments` prints.
  std::string report(const std::string& arguments) const {
    CLI::App app;
    add_profile_command(app);
    testing::internal::CaptureStdout();
    try {
      app.parse("profile report " + path.string() + " " + arguments);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }

  std::filesystem::path path = std::filesystem::temp_directory_path() /
                               ("minfer_profile_command_" + std::to_string(getpid()) + ".jsonl");
};

TEST_F(ProfileCommand, ReportsAllSteps) {
  const std::string text = report("");
  EXPECT_NE(text.find("steps 0 to 8: 9 recorded, 0 dropped"), std::string::npos) << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);  // the test's output is no terminal
}

TEST_F(ProfileCommand, OptionsReachTheReport) {
  EXPECT_EQ(report("-o json").front(), '{');
  EXPECT_EQ(report("-o csv --sort name --top 2 --phase decode").substr(0, 9), "op,time%,");
  const std::string csv = report("-o csv --sort name --top 2 --phase decode");
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 3);
  EXPECT_NE(csv.find("\nattention_decode,"), std::string::npos);
  EXPECT_NE(report("--phase mixed").find("below: the 3 mixed ones"), std::string::npos);
  EXPECT_NE(report("-o md").find("| op | time% |"), std::string::npos);
}

TEST_F(ProfileCommand, ShowsOneStep) {
  EXPECT_EQ(report("--step 4").substr(0, 14), "step 4, mixed:");
}

TEST_F(ProfileCommand, WrongStepIsAnErrorThatNamesTheRange) {
  try {
    report("--step 9");
    FAIL() << "step 9 is not in the file";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--step 9: not in the profile, which holds 9 steps from 0 to 8");
  }
}

TEST_F(ProfileCommand, WrongArgumentsAreRefused) {
  EXPECT_THROW(report("-o yaml"), CLI::ParseError);
  EXPECT_THROW(report("--sort colour"), CLI::ParseError);
  EXPECT_THROW(report("--phase warmup"), CLI::ParseError);
  EXPECT_THROW(report("--top -1"), CLI::ParseError);
  EXPECT_THROW(report("--step 4 --top 3"), CLI::ParseError);
  EXPECT_THROW(report("--frobnicate"), CLI::ParseError);
}

TEST_F(ProfileCommand, MissingFileIsAnError) {
  std::filesystem::remove(path);
  EXPECT_THROW(report(""), FileError);
}

}  // namespace
}  // namespace minfer
