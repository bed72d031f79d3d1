#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>

#include "engine/ranks/ranks.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"

int main(int argc, char** argv) {
  CLI::App app{"minfer: a minimal LLM inference engine that says where the time of every step went"};
  app.set_version_flag("--version", MINFER_VERSION);
  app.require_subcommand(1);
  app.failure_message(minfer::explain);
  app.footer(
      "Examples:\n"
      "  minfer run \"Once upon a time\" -n 60\n"
      "  minfer serve\n"
      "  minfer bench --help");
  minfer::add_run_command(app);
  minfer::add_serve_command(app);
  minfer::add_bench_command(app);
  minfer::add_eval_command(app);
  minfer::add_tokenize_command(app);
  minfer::add_profile_command(app);
  minfer::add_tune_command(app);
  minfer::add_inspect_command(app);
  minfer::add_models_command(app);
  minfer::add_completion_command(app);
  minfer::add_man_command(app);
  // llama.cpp's spelling of --hf-repo: CLI11 knows no names of two letters behind one dash.
  static char hf_repo[] = "--hf-repo";
  for (char*& argument : std::span(argv, static_cast<size_t>(argc)))
    if (std::string_view(argument) == "-hf") argument = hf_repo;
  try {
    try {
      app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      if (app.exit(error) != 0) return 2;  // help and version are no errors
    }
    minfer::print_output("");  // what a command has printed in any way has left
  } catch (const minfer::FollowedToEnd&) {
    return 0;
  } catch (const std::bad_alloc&) {
    minfer::print_notice("minfer: error: out of memory: the system gives no more (ulimit -v may limit it)\n");
    return 1;
  } catch (const std::exception& error) {
    minfer::print_notice(std::string("minfer: error: ") + error.what() + "\n");
    return 1;
  }
  return 0;
}
