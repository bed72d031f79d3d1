#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace minfer {

/// Scripts that complete command lines of `app` in a shell: commands, options with their descriptions, values where there are
/// few, files where one is wanted. They are made from the definition that parses the command line, so they always match it.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

/// `minfer completion bash|zsh|fish`, which prints them. Not in --help: packages call it.
void add_completion_command(CLI::App& app);

}  // namespace minfer
