#pragma once

#include <string>
#include <vector>

namespace minfer {

/// A program's end and its output.
struct ChildResult {
  int status = 0;          ///< exit status; 128 and more: by a signal
  bool timed_out = false;  ///< it was ended because of the time limit
  std::string output;      ///< standard output
  std::string errors;      ///< standard error
};

/// Runs a program, `arguments.front()`, to its end, with empty input. Keeps the first 16 MiB of each
/// stream. The program ends with its parent at the latest. Throws Error if it cannot be started.
ChildResult run_child(const std::vector<std::string>& arguments, double timeout_s);

}  // namespace minfer
