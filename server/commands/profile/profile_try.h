#pragma once

#include <string>

#include "profiling/findings/findings_report.h"

namespace minfer {

struct TryOptions {
  std::string profile;  ///< the profile whose load is run again
  std::string model;    ///< empty: the record's
  double budget_s = 120.0;
  std::string format;  ///< "table", "md" or "json"
};

/// Runs the recorded load with and without each option that findings advise, in turns, in processes of their own; then
/// with all options that helped together. Returns measured beside estimated gains, best first, and the resulting command
/// line. Throws FileError if the profile's load cannot be run again, Error if it does not run as it was recorded.
std::string try_advice(const Diagnosis& diagnosis, const TryOptions& options);

}  // namespace minfer
