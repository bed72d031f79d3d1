// `minfer profile view` and `trace`: a profile as a page, and as a trace for Perfetto.
#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "profiling/chrome_trace/chrome_trace.h"
#include "profiling/chrome_trace/trace_output.h"
#include "profiling/json/json_reader.h"
#include "profiling/page/page_profile.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/page/page.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct ExportArguments {
  std::string path;
  std::string out;
  StepFilter filter;  ///< of a trace
};

/// Adds a subcommand that reads a profile and writes a file; `out`: says of what kind.
CLI::App* add_export(CLI::App& profile, const char* name, const char* what, const char* out,
                     const std::shared_ptr<ExportArguments>& arguments) {
  CLI::App* command = profile.add_subcommand(name, what);
  add_profile_file(*command, arguments->path);
  command->add_option("-o,--output", arguments->out, out)->option_text("FILE")->required();
  return command;
}

void run_view(const ExportArguments& arguments) {
  require_profile(arguments.path);
  require_other_file(arguments.path, arguments.out);
  PageProfile profile;
  const std::string note = read_profile(arguments.path, profile);
  read_profile(arguments.path, *profile.second_reading());
  const std::string html =
      single_page_html(profile.json(std::filesystem::path(arguments.path).filename().string(), note));
  TraceOutput output(arguments.out);
  output.write(html);
  output.close();
  if (!note.empty()) print_notice(note + "\n");
  print_output(fmt::format("{}: {:.1f} MB; open it in a browser\n", arguments.out,
                           static_cast<double>(html.size()) * 1e-6));
}

void run_trace(const ExportArguments& arguments) {
  require_profile(arguments.path);
  require_other_file(arguments.path, arguments.out);
  const ProfileFile file = read_profile(arguments.path);
  std::unique_ptr<TraceOutput> output;  // opened when there is something to write
  const TraceCounts counts = write_chrome_trace(file, arguments.filter, [&](std::string_view text) {
    if (output == nullptr) output = std::make_unique<TraceOutput>(arguments.out);
    output->write(text);
  });
  output->close();
  if (!file.note.empty()) print_notice(file.note + "\n");
  if (counts.without_step > 0)
    print_notice(fmt::format("{} kernels and copies are left out: the profile has no line of their steps\n",
                             counts.without_step));
  fmt::print("{}: {} steps, {} kernels and copies; open it at https://ui.perfetto.dev\n", arguments.out,
             counts.steps, counts.kernels);
}

}  // namespace

void add_profile_view_command(CLI::App& profile) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* view = add_export(profile, "view", "A profile as a page for a browser, in one file",
                              "HTML file to write; it needs no network", arguments);
  view->footer(
      "The page is the one that `minfer serve` shows: findings, steps, the time from the top down, the "
      "roofline, requests, memory.\n"
      "If there are many steps, it holds the shortest and longest of each bucket and the slowest of all.\n\n"
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out steps.jsonl\n"
      "  minfer profile view steps.jsonl -o report.html\n"
      "  minfer profile view steps.jsonl --output decode.html");
  view->callback([arguments] { run_view(*arguments); });
}

void add_profile_trace_command(CLI::App& profile) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* trace =
      add_export(profile, "trace", "The recorded steps as a trace for Perfetto",
                 "File to write, in Chrome's trace format; compressed if it ends in .gz", arguments);
  add_step_filter(*trace, arguments->filter);
  trace->footer(
      "A trace has the parts of each step on the host, steps, phases, layers and ops on the device, requests "
      "and counters,\n"
      "and every kernel of a traced range (--profile-range). Perfetto (https://ui.perfetto.dev), "
      "chrome://tracing\n"
      "and Holistic Trace Analysis read it.\n\n"
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out steps.jsonl\n"
      "  minfer profile trace steps.jsonl -o trace.json.gz\n"
      "  minfer profile trace steps.jsonl -o decode.json --steps 4:7 --phase decode");
  trace->callback([arguments] { run_trace(*arguments); });
}

}  // namespace minfer
