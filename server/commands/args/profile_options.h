#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "profiling/report/summary.h"

namespace minfer {

// Options that several commands on profile files have.

/// --phase, --steps and --request.
std::vector<CLI::Option*> add_step_filter(CLI::App& command, StepFilter& filter);

/// --fail-above: a percentage, "3%" or "3", as a share.
CLI::Option* add_fail_above(CLI::App& command, std::optional<double>& share, const std::string& description);

/// Throws FileError if there is no file to read.
void require_profile(const std::string& path);

/// Throws Error if the file to write is the profile that is read.
void require_other_file(const std::string& profile, const std::string& output);

}  // namespace minfer
