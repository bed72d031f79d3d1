#pragma once

#include <filesystem>
#include <string>

#include "tests/support/temporary_directory.h"

namespace minfer::test {

/// The result of a command line.
struct Outcome {
  int exit_code;
  std::string out;
  std::string err;
};

/// Runs the program as people do: with a shell, in its own folder.
class CommandLine {
 public:
  /// Runs `minfer ARGUMENTS`; `input` is piped in.
  Outcome minfer(const std::string& arguments, const std::string& input = "") const;
  /// Runs any command line, in which `minfer` is the program under test.
  Outcome shell(const std::string& command, const std::string& input = "") const;

  /// A file of the folder.
  std::filesystem::path path(const std::string& file) const { return dir_.path() / file; }
  void write(const std::string& file, const std::string& content) const;
  std::string read(const std::string& file) const;

 private:
  TemporaryDirectory dir_;
};

}  // namespace minfer::test
