#pragma once

#include <filesystem>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/counters/counter_window.h"
#include "profiling/json/profile_header.h"
#include "profiling/report/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// What a profile file says.
struct ProfileFile {
  ProfileHeader header;
  std::vector<KernelLaunch> launches;  ///< what OpSummary::launches are indices into
  std::vector<StepSummary> steps;
  std::vector<RangeLine> ranges;    ///< that were traced, or could not be
  std::vector<KernelLine> kernels;  ///< of all of them
  std::string note;                 ///< what was left out because the file ends within a line; empty: nothing
  std::vector<CounterWindow> counters = {};  ///< windows of hardware counters, in the order of time
};

/// Reads a profile file up to its last whole line. Fields it does not know are passed over. Throws FileError,
/// naming file, line and field, if there is no whole header line, a line is not as the schema says, or is
/// longer than 8 MiB. Control characters in texts become '?', so that a file cannot steer the terminal it is
/// shown on.
ProfileFile read_profile(const std::filesystem::path& path);

/// The same from a stream; `name` stands for it in errors.
ProfileFile read_profile(std::istream& stream, std::string_view name);

}  // namespace minfer
