#pragma once

#include <string>
#include <vector>

#include "profiling/findings/evidence.h"
#include "profiling/findings/finding.h"
#include "profiling/findings/rules.h"
#include "profiling/json/json_field.h"
#include "profiling/json/json_text.h"

namespace minfer {

/// The findings in a profile, and the limit of the run.
struct Diagnosis {
  std::vector<Finding> findings;  ///< worst first
  Limit limit;
  int64_t steps = 0;
  int64_t requests = 0;
  double wall_us = 0.0;      ///< of the steps, and of gaps with work between them
  double idle_us = 0.0;      ///< of gaps without work
  std::string devices = {};  ///< see devices_text()

  bool is_healthy() const;
  /// The weight of the worst finding; 0: there is none.
  double worst() const { return findings.empty() ? 0.0 : findings.front().weight(); }
};
Diagnosis diagnose(const Evidence& evidence);

/// Text of at most 80 columns: the verdict, a table, then the evidence and advice of each finding. `colour`: bold titles. `all`: also
/// findings that leave a run healthy.
std::string findings_text(const Diagnosis& diagnosis, bool colour, bool all = false);
std::string findings_markdown(const Diagnosis& diagnosis, bool all = false);
/// {"healthy","limit_of_hardware","next_limit","steps","requests","wall_us","idle_us","devices","findings":[...]}
void write_findings(JsonText& json, const Diagnosis& diagnosis);
/// Reads the output of write_findings(). Throws FileError, naming the field.
Diagnosis diagnosis_of(const JsonField& field);

}  // namespace minfer
