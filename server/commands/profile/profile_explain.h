#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// Adds `explain` to the command `profile`.
void add_explain_command(CLI::App& profile);

}  // namespace minfer
