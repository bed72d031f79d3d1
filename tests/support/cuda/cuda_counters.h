#pragma once

#include <string>

namespace minfer::test {

/// True if counters are refused to this process, or there are none, so that nothing can be tested.
inline bool are_counters_refused(const std::string& error) {
  for (const char* reason : {"(26)", "(27)", "(35)", "(40)", "(41)", "(43)", "cannot be loaded",
                             "has no hardware counters", "CUPTI lacks"}) {
    if (error.find(reason) != std::string::npos) return true;
  }
  return false;
}

}  // namespace minfer::test
