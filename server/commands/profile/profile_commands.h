#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// Each adds one subcommand to `profile`, the command it stands in.
void add_profile_diff_command(CLI::App& profile);
void add_explain_command(CLI::App& profile);
void add_profile_trace_command(CLI::App& profile);
void add_profile_view_command(CLI::App& profile);

}  // namespace minfer
