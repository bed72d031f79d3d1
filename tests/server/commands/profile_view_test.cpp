// `minfer profile view` as a command.
#include <algorithm>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/support/server/profile_command.h"

namespace minfer {
namespace {

using testing::HasSubstr;
using testing::Not;

class ProfileViewCommand : public test::ProfileCommandTest {
 protected:
  ProfileViewCommand() : ProfileCommandTest("view") {}

  /// The data in the newest page.
  nlohmann::json data() const {
    const std::string html = text_of("report.html"), open = "id=\"data\">";
    const size_t begin = html.find(open) + open.size();
    return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  }
};

TEST_F(ProfileViewCommand, WritesAPage) {
  EXPECT_THAT(run("-o " + path("report.html")), HasSubstr("report.html: 0."));
  EXPECT_THAT(text_of("report.html"), HasSubstr("<!doctype html>"));
  EXPECT_EQ(data().at("report").at("all").at("steps"), 9);
  EXPECT_EQ(data().at("file").at("name"), "run.jsonl");
}

TEST_F(ProfileViewCommand, NamesInTheProfileAreNoMarkup) {
  const std::string hostile = "</script><script>alert(1)</script>";
  ProfileHeader header = test::sample_header();
  header.model = header.device = hostile;
  std::vector<StepSummary> steps = test::sample_steps(2);
  steps[0].requests = {hostile};
  write(header, steps);
  run("-o " + path("report.html"));
  EXPECT_THAT(text_of("report.html"), Not(HasSubstr("<script>alert(1)")));
  EXPECT_EQ(data().at("report").at("model"), hostile);
  EXPECT_EQ(data().at("strip").at("request_ids")[0], hostile);
}

TEST_F(ProfileViewCommand, ThinningKeepsTheSlowestStep) {
  std::vector<StepSummary> steps;
  for (int64_t i = 0; i < 12'000; ++i) {
    steps.push_back(test::sample_steps(1).front());
    steps.back().step = i;
    steps.back().start_ns += 1'000'000 * i;
    steps.back().wall_us += static_cast<double>(i % 13);
  }
  steps[7'321].wall_us = 1e6;
  write(test::sample_header(), steps);
  run("-o " + path("report.html"));
  const nlohmann::json page = data();
  EXPECT_EQ(page.at("report").at("all").at("steps"), 12'000);
  EXPECT_LT(page.at("strip").at("steps").size(), 2'000u);
  EXPECT_TRUE(std::ranges::any_of(page.at("strip").at("steps"),
                                  [](const auto& step) { return step.at("step") == 7'321; }));
  EXPECT_LT(std::filesystem::file_size(path("report.html")), 3u << 20);
}

TEST_F(ProfileViewCommand, ACutFileIsShownToItsLastWholeLine) {
  write_text(profile_.substr(0, profile_.size() - 10));
  run("-o " + path("report.html"));
  EXPECT_EQ(data().at("report").at("all").at("steps"), 8);
  EXPECT_NE(data().at("file").at("note"), "");
}

TEST_F(ProfileViewCommand, WhatCannotBeIsRefusedBeforeTheOutputIsTouched) {
  EXPECT_THAT(refusal("-o " + path("run.jsonl")), HasSubstr("is the profile itself"));
  EXPECT_EQ(text_of("run.jsonl"), profile_);
  EXPECT_THROW(run(""), CLI::ParseError);
  EXPECT_THROW(run("-o " + path("no/such/folder.html")), FileError);
  write_text(profile_.substr(0, profile_.find('\n') + 1));
  EXPECT_THAT(refusal("-o " + path("report.html")), HasSubstr("holds no step"));
  write_text("no profile\n");
  EXPECT_THROW(run("-o " + path("report.html")), FileError);
  EXPECT_FALSE(std::filesystem::exists(path("report.html")));
}

}  // namespace
}  // namespace minfer
