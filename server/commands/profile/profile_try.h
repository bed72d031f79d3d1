#pragma once

#include <string>

#include "profiling/findings/findings_report.h"

namespace minfer {

struct TryOptions {
  std::string profile;  ///< whose load is run again
  std::string model;    ///< empty: the record's
  double budget_s = 120.0;
  std::string format;  ///< "table", "md" or "json"
};

/// Runs the recorded load with each option that findings advise and without it, in turns, in processes of their own, then with all that
/// helped together. Returns what was measured beside what was estimated, best first, and the command line that results. Throws FileError for
/// a profile whose load cannot be run again, Error for one that does not run as it was recorded.
std::string try_advice(const Diagnosis& diagnosis, const TryOptions& options);

}  // namespace minfer
