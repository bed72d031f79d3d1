#pragma once

#include <CLI/CLI.hpp>

namespace minfer {

/// Each adds one subcommand with its options to `app`; the subcommand's callback does the work and throws Error.
void add_tokenize_command(CLI::App& app);
void add_inspect_command(CLI::App& app);
void add_profile_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_serve_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_eval_command(CLI::App& app);
void add_tune_command(CLI::App& app);
void add_models_command(CLI::App& app);
void add_explain_command(CLI::App& profile);  ///< within `profile`

// The next two are not in --help: packages call them. Both are made from the definition that parses the command line, so they
// always match it.

/// `minfer man` prints the names of its manual pages, `minfer man NAME` one of them in roff: "minfer" of all, "minfer-run" of one command.
void add_man_command(CLI::App& app);
/// `minfer completion bash|zsh|fish`: scripts that complete command lines in a shell, options with their descriptions, values where
/// there are few, files where one is wanted.
void add_completion_command(CLI::App& app);

}  // namespace minfer
