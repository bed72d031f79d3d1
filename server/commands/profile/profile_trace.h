#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// Adds `trace` to `minfer profile`: a profile file as a trace for Perfetto.
void add_profile_trace_command(CLI::App& profile);

}  // namespace minfer
