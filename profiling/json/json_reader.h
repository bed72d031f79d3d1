#pragma once

#include <filesystem>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/json/profile_header.h"
#include "profiling/report/summary.h"

namespace minfer {

/// What a profile file says.
struct ProfileFile {
  ProfileHeader header;
  std::vector<StepSummary> steps;
  std::string note;  ///< what was left out because the file ends within a line; empty: nothing
};

/// Reads a profile file up to its last whole line. Fields it does not know are passed over. Throws FileError,
/// naming file, line and field, if there is no whole header line, a line is not as the schema says, or is
/// longer than 8 MiB. Control characters in texts become '?', so that a file cannot steer the terminal it is
/// shown on.
ProfileFile read_profile(const std::filesystem::path& path);

/// The same from a stream; `name` stands for it in errors.
ProfileFile read_profile(std::istream& stream, std::string_view name);

}  // namespace minfer
