#include "server/commands/profile/profile_trace.h"

#include <memory>
#include <string>

#include <fmt/format.h>

#include "profiling/chrome_trace/chrome_trace.h"
#include "profiling/chrome_trace/trace_output.h"
#include "profiling/json/json_reader.h"
#include "server/commands/args/profile_options.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct TraceArguments {
  std::string path;
  std::string out;
  StepFilter filter;
};

void run_trace(const TraceArguments& arguments) {
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

void add_profile_trace_command(CLI::App& profile) {
  CLI::App* trace = profile.add_subcommand("trace", "The recorded steps as a trace for Perfetto");
  const auto arguments = std::make_shared<TraceArguments>();
  trace->add_option("file", arguments->path, "Profile file, as --profile-out writes it")
      ->option_text("FILE")
      ->required();
  trace
      ->add_option("-o,--output", arguments->out,
                   "File to write, in Chrome's trace format; compressed if it ends in .gz")
      ->option_text("FILE")
      ->required();
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
