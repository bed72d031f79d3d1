#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// Adds `view` to `minfer profile`: a profile file as a page for a browser.
void add_profile_view_command(CLI::App& profile);

}  // namespace minfer
