#pragma once

#include <string>
#include <vector>

namespace minfer {

/// How a program ended, and what it wrote.
struct ChildResult {
  int status = 0;          ///< exit status; 128 and more: by a signal
  bool timed_out = false;  ///< it was ended for that
  std::string output;      ///< standard output
  std::string errors;      ///< standard error
};

/// Runs a program, `arguments.front()`, to its end, with nothing to read. Of each stream the first 16 MiB are kept. It ends with its
/// parent at the latest. Throws Error if it cannot be started.
ChildResult run_child(const std::vector<std::string>& arguments, double timeout_s);

}  // namespace minfer
