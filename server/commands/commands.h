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

}  // namespace minfer
