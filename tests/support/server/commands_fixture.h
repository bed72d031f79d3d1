#pragma once

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/server/command_line.h"

/// The built program as people use it.
namespace minfer::test {

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class CommandsFixture : public testing::Test {
 protected:
  Outcome minfer(const std::string& arguments, const std::string& input = "") const {
    return line_.minfer(arguments, input);
  }
  std::filesystem::path path(const std::string& file) const { return line_.path(file); }
  const CommandLine& line() const { return line_; }

  /// Options that make the commands quick.
  static constexpr const char* kTiny = "--model synthetic:tiny:q8_0 --max-model-len 256 --threads 1 ";

 private:
  CommandLine line_;
};

}  // namespace minfer::test
