#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "kernels/error.h"
#include "profiling/json_reader.h"
#include "profiling/report.h"
#include "profiling/step_picture.h"
#include "server/commands.h"
#include "server/terminal.h"

namespace minfer {
namespace {

struct ReportArguments {
  std::string path;
  std::optional<int64_t> step;
  ReportOptions report;
};

// "table" -> ReportFormat::table, and so on for `values`.
template <class Enum, size_t N>
std::map<std::string, Enum> by_name(const Enum (&values)[N]) {
  std::map<std::string, Enum> result;
  for (const Enum value : values)
    result.emplace(name(value), value);
  return result;
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
  const ProfileFile file = read_profile(arguments.path);
  arguments.report.colour = is_terminal(stdout);
  if (arguments.step) {
    print(render_step(find_step(file, *arguments.step), file.header.ceilings, arguments.report.colour));
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
  report->add_option("file", arguments->path, "Profile file (.jsonl)")->required();
  CLI::Option* step = report->add_option("--step", arguments->step, "Show this step alone, as bars");
  report->add_option("-o,--output", options.format, "table, json, csv (the ops alone) or md")
      ->transform(CLI::CheckedTransformer(
          by_name({ReportFormat::table, ReportFormat::json, ReportFormat::csv, ReportFormat::md})))
      ->excludes(step);
  report
      ->add_option("--sort", options.sort, "Order of the ops: time, calls, mean, max, gbps, roofline or name")
      ->transform(CLI::CheckedTransformer(
          by_name({ReportSort::time, ReportSort::calls, ReportSort::mean, ReportSort::max, ReportSort::gbps,
                   ReportSort::roofline, ReportSort::name})))
      ->excludes(step);
  report->add_option("--top", options.top, "Ops listed at most; 0 lists all")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->excludes(step);
  report
      ->add_option("--phase", options.phase,
                   "Only steps that prefill, decode or do both: prefill, decode or mixed")
      ->transform(CLI::CheckedTransformer(by_name({StepPhase::prefill, StepPhase::decode, StepPhase::mixed})))
      ->excludes(step);
  report->callback([arguments] { run_report(*arguments); });
}

}  // namespace minfer
