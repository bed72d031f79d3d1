#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kernels/error.h"
#include "profiling/json/json_reader.h"
#include "profiling/report/report.h"
#include "profiling/report/step_picture.h"
#include "server/commands/checks.h"
#include "server/commands/commands.h"
#include "server/commands/terminal.h"

namespace minfer {
namespace {

struct ReportArguments {
  std::string path;
  std::optional<int64_t> step;
  ReportOptions report;
};

// Adds an option that takes the name of one of `values`.
template <class Target, class Enum, size_t N>
CLI::Option* add_choice(CLI::App* command, const std::string& flags, Target& target, const Enum (&values)[N],
                        const std::string& description) {
  std::map<std::string, Enum> by_name;
  std::vector<std::string> names;
  for (const Enum value : values) {
    names.emplace_back(name(value));
    by_name.emplace(names.back(), value);
  }
  const auto choose = [&target, by_name](const std::string& chosen) { target = by_name.at(chosen); };
  return command->add_option_function<std::string>(flags, choose, description)
      ->check(one_of(names))
      ->option_text(fmt::format("{}", fmt::join(names, "|")));
}

const StepSummary& find_step(const ProfileFile& file, int64_t step) {
  const auto found = std::ranges::find(file.steps, step, &StepSummary::step);
  if (found != file.steps.end()) return *found;
  if (file.steps.empty()) fail("--step {}: the profile holds no step", step);
  fail("--step {}: not in the profile, which holds {} steps from {} to {}", step, file.steps.size(),
       file.steps.front().step, file.steps.back().step);
}

void print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  if (!written) fail("cannot write to standard output");
}

void run_report(ReportArguments arguments) {
  const std::string refusal = existing_file()(arguments.path);
  if (!refusal.empty()) fail<FileError>("{}", refusal);
  const ProfileFile file = read_profile(arguments.path);
  arguments.report.colour = is_terminal(stdout);
  if (arguments.step) {
    print(render_step(find_step(file, *arguments.step), file.header, arguments.report.colour));
  } else {
    print(render_report(file, arguments.report));
  }
}

}  // namespace

void add_profile_command(CLI::App& app) {
  CLI::App* profile = app.add_subcommand("profile", "Read what the profiler wrote");
  profile->require_subcommand(1);
  CLI::App* report = profile->add_subcommand("report", "Where the time of the recorded steps went");
  const auto arguments = std::make_shared<ReportArguments>();
  ReportOptions& options = arguments->report;
  report->add_option("file", arguments->path, "Profile file, as --profile-out writes it")
      ->option_text("FILE")
      ->required();
  CLI::Option* step =
      report->add_option("--step", arguments->step, "Show the step of this number alone, as bars")
          ->option_text("N");
  add_choice(report, "-o,--output", options.format,
             {ReportFormat::table, ReportFormat::json, ReportFormat::csv, ReportFormat::md},
             "How to print it (default table); csv has the ops alone")
      ->excludes(step);
  add_choice(report, "--sort", options.sort,
             {ReportSort::time, ReportSort::calls, ReportSort::mean, ReportSort::max, ReportSort::gbps,
              ReportSort::roofline, ReportSort::name},
             "Order of the ops (default time)")
      ->excludes(step);
  add_choice(report, "--phase", options.phase, {StepPhase::prefill, StepPhase::decode, StepPhase::mixed},
             "Only the steps that prefill, decode, or do both")
      ->excludes(step);
  report->add_option("--top", options.top, "Ops listed at most; 0 lists all")
      ->check(CLI::Range(0, 1'000'000))
      ->option_text(fmt::format("N (default {})", options.top))
      ->excludes(step);
  report->footer(
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out steps.jsonl\n"
      "  minfer profile report steps.jsonl\n"
      "  minfer profile report steps.jsonl --sort calls --top 3 -o md\n"
      "  minfer profile report steps.jsonl --step 8");
  report->callback([arguments] { run_report(*arguments); });
}

}  // namespace minfer
