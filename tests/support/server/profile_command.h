#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "profiling/json/lines.h"
#include "server/commands/commands.h"
#include "tests/support/profiling/sample_profile.h"
#include "tests/support/temporary_directory.h"

namespace minfer::test {

/// `minfer profile COMMAND run.jsonl` in its own folder, where run.jsonl has a header and nine steps.
class ProfileCommandTest : public testing::Test {
 protected:
  explicit ProfileCommandTest(std::string command) : command_(std::move(command)) {
    write(sample_header(), sample_steps(9));
  }

  void write(const ProfileHeader& header, const std::vector<StepSummary>& steps) {
    profile_.clear();
    append_header_line(profile_, header);
    for (const StepSummary& step : steps)
      append_line(profile_, step);
    write_text(profile_);
  }
  void write_text(const std::string& text) const { std::ofstream(path("run.jsonl")) << text; }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  /// Returns what the command prints.
  std::string run(const std::string& arguments) const {
    CLI::App app;
    add_profile_command(app);
    testing::internal::CaptureStdout();
    try {
      app.parse("profile " + command_ + " " + path("run.jsonl") + " " + arguments);
    } catch (...) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }
  std::string refusal(const std::string& arguments) const {
    try {
      run(arguments);
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

  const TemporaryDirectory directory_;
  const std::string command_;
  std::string profile_;  ///< the text of run.jsonl
};

}  // namespace minfer::test
