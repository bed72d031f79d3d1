#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// `minfer profile diff`. `profile`: the command it stands in.
void add_profile_diff_command(CLI::App& profile);

}  // namespace minfer
