#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// `minfer man` prints the names of its manual pages, `minfer man NAME` one of them in roff: "minfer" of all, "minfer-run" of one command.
/// Made from the definition that parses the command line. Not in --help: packages call it.
void add_man_command(CLI::App& app);

}  // namespace minfer
