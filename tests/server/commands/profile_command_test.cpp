#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "kernels/base/error.h"
#include "profiling/json/lines.h"
#include "server/commands/commands.h"
#include "tests/support/profiling/sample_profile.h"

namespace minfer {
namespace {

class ProfileCommand : public testing::Test {
 protected:
  ProfileCommand() {
    std::string text;
    append_header_line(text, test::sample_header());
    for (const StepSummary& step : test::sample_steps(9))
      append_line(text, step);
    std::ofstream(path) << text;
  }
  ~ProfileCommand() override { std::filesystem::remove(path); }

  // The output of `minfer profile report FILE arguments`.
  std::string report(const std::string& arguments) const {
    return output_of("profile report " + path.string() + " " + arguments);
  }
  std::string explain(const std::string& arguments) const {
    return output_of("profile explain " + path.string() + " " + arguments);
  }
  static std::string output_of(const std::string& command_line) {
    CLI::App app;
    add_profile_command(app);
    testing::internal::CaptureStdout();
    try {
      app.parse(command_line);
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

TEST_F(ProfileCommand, ViewsAndFilters) {
  EXPECT_NE(report("--view top-down --phase decode").find("\ndecode "), std::string::npos);
  EXPECT_EQ(report("--view top-down --op qkv").find("lm_head"), std::string::npos);
  EXPECT_NE(report("--steps 2:4").find("below: 3 steps from 2 to 4"), std::string::npos)
      << report("--steps 2:4");
  EXPECT_NE(report("--request request-0").find("steps of request request-0"), std::string::npos);
  EXPECT_THROW(report("--steps 4:2"), Error);
  EXPECT_THROW(report("--view bottom-up"), Error) << "a CPU launches no kernels";
  EXPECT_THROW(report("--op nothing"), Error);
}

TEST_F(ProfileCommand, DiffFailsAboveAShare) {
  const auto diff = [&](const std::string& arguments) {
    CLI::App app;
    add_profile_command(app);
    testing::internal::CaptureStdout();
    std::string refusal;
    try {
      app.parse("profile diff " + path.string() + " " + arguments);
    } catch (const Error& error) {
      refusal = std::string("refused: ") + error.what();
    }
    return testing::internal::GetCapturedStdout() + refusal;
  };
  EXPECT_NE(diff(path.string()).find("no difference beyond noise"), std::string::npos);
  EXPECT_EQ(diff(path.string() + " --fail-above 0%").find("refused"), std::string::npos);
  EXPECT_NE(diff(path.string() + " --fail-above much").find("expected a percentage"), std::string::npos);
  const std::filesystem::path slower = path.string() + ".slower";
  std::string text;
  append_header_line(text, test::sample_header());
  for (StepSummary& step : test::sample_steps(9)) {
    for (OpSummary& op : step.ops)
      op.us *= 1.5;
    step.wall_us *= 1.5;
    append_line(text, step);
  }
  std::ofstream(slower) << text;
  EXPECT_NE(diff(slower.string() + " --fail-above 3%").find("refused: B is slower by 50.00 % a token"),
            std::string::npos);
  EXPECT_EQ(diff(slower.string() + " --fail-above 60").find("refused"), std::string::npos);
  EXPECT_EQ(diff(slower.string() + " -o json").front(), '{');
  std::filesystem::remove(slower);
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

TEST_F(ProfileCommand, ShowsWhereTheTimeOfSlowRequestsWent) {
  const std::string command = "profile requests " + path.string();
  EXPECT_NE(output_of(command).find("0 requests ended"), std::string::npos);
  std::string text;
  for (int64_t i = 0; i < 12; ++i) {
    EndedRequest request;
    request.id = i == 7 ? "request-0" : "other";  // the id that the nine steps name
    request.finish = "length";
    request.arrival_ns = 1'000'000'000 - i;
    request.first_scheduled_ns = 1'000'000'000;
    request.first_token_ns = i == 7 ? 1'007'000'000 : 1'001'000'000;
    request.end_ns = 1'009'000'000;
    request.output_tokens = 3;
    request.steps = {.first = 0, .last = 8, .prefill = 1, .decode = 8};
    append_line(text, request);
  }
  std::ofstream(path, std::ios::app) << text;
  EXPECT_NE(output_of(command).find("12 requests ended; the 10 slowest by e2e"), std::string::npos);
  const nlohmann::json slow = nlohmann::json::parse(output_of(command + " --slowest 1 --by ttft -o json"));
  EXPECT_EQ(slow.at("by"), "ttft");
  EXPECT_EQ(slow.at("ended"), 12);
  ASSERT_EQ(slow.at("slowest").size(), 1u);
  EXPECT_EQ(slow.at("slowest")[0].at("request").at("id"), "request-0");
  EXPECT_EQ(slow.at("slowest")[0].at("known_steps"), 9);
  EXPECT_THROW(output_of(command + " --by speed"), CLI::ParseError);
  EXPECT_THROW(output_of(command + " --slowest 0"), CLI::ParseError);
  EXPECT_THROW(output_of("profile requests " + path.string() + ".none"), FileError);
}

TEST_F(ProfileCommand, ExplainsAndFailsAboveALimit) {
  EXPECT_TRUE(explain("").starts_with("Slowed by ")) << "the verdict comes first";
  EXPECT_NE(explain("").find("\nFindings\n"), std::string::npos);
  EXPECT_NE(explain("-o md").find("| finding | class |"), std::string::npos);
  const nlohmann::json findings = nlohmann::json::parse(explain("-o json"));
  EXPECT_FALSE(findings.at("healthy"));
  const std::string first = findings.at("findings").at(0).at("finding");
  EXPECT_NE(report("-o md").find("1. **" + first + "**"), std::string::npos)
      << "the report ends with the same";
  EXPECT_EQ(nlohmann::json::parse(report("-o json")).at("findings"), findings);
  EXPECT_NO_THROW(explain("--fail-above 100%"));
  try {
    explain("--fail-above 5");
    FAIL() << first << " is worth more";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(first), std::string::npos) << error.what();
  }
}

TEST_F(ProfileCommand, ExplainRefusesWhatItCannotRead) {
  EXPECT_THROW(explain("--fail-above much"), Error);
  EXPECT_THROW(explain("--url http://127.0.0.1:1"), Error) << "a file and a server";
  EXPECT_THROW(output_of("profile explain"), Error);
  EXPECT_THROW(output_of("profile explain --url ftp://x"), Error);
  EXPECT_THROW(explain("-o csv"), CLI::ParseError);
  EXPECT_THROW(explain("--last 5"), CLI::ParseError);
}

TEST_F(ProfileCommand, MissingFileIsAnError) {
  std::filesystem::remove(path);
  EXPECT_THROW(report(""), FileError);
}

}  // namespace
}  // namespace minfer
