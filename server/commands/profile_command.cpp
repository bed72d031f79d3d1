#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "profiling/chrome_trace/chrome_trace.h"
#include "profiling/diff/profile_diff.h"
#include "profiling/json/json_reader.h"
#include "profiling/page/page_profile.h"
#include "profiling/report/report.h"
#include "profiling/requests/slow_requests.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/page/page.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct ReportArguments {
  std::string path;
  std::optional<int64_t> step;
  ReportOptions report;
};

/// Finds the step of a number while a profile is read.
class StepFinder final : public ProfileVisitor {
 public:
  explicit StepFinder(int64_t step) : step_(step) {}
  void header(ProfileHeader header) override { header_ = std::move(header); }
  void step(StepSummary& step) override {
    if (steps_++ == 0) first_ = step.step;
    last_ = step.step;
    if (step.step == step_ && !found_) found_ = step;
  }
  void traced_step(const StepKernels& kernels) override {
    if (found_ && kernels.step == step_) found_->kernels = kernels;
  }

  const ProfileHeader& header() const { return header_; }
  const StepSummary& found() const {
    if (found_) return *found_;
    if (steps_ == 0) fail("--step {}: the profile holds no step", step_);
    fail("--step {}: not in the profile, which holds {} steps from {} to {}", step_, steps_, first_, last_);
  }

 private:
  int64_t step_;
  ProfileHeader header_;
  std::optional<StepSummary> found_;
  int64_t steps_ = 0;
  int64_t first_ = 0;
  int64_t last_ = 0;
};

void run_report(ReportArguments arguments) {
  require_profile(arguments.path);
  arguments.report.colour = is_terminal(stdout);
  if (arguments.step) {
    StepFinder finder(*arguments.step);
    read_profile(arguments.path, finder);
    print_output(render_step(finder.found(), finder.header(), arguments.report.colour));
    return;
  }
  ReportSums sums(arguments.report.filter, arguments.report.slowest);
  std::string note = read_profile(arguments.path, sums);
  print_output(render_report(sums.finish(std::move(note)), arguments.report));
}

struct RequestsArguments {
  std::string path;
  size_t slowest = 10;
  RequestOrder order = RequestOrder::e2e;
  std::string format = "table";
};

void add_requests_command(CLI::App& profile) {
  CLI::App* command = profile.add_subcommand("requests", "Where the time of the slowest requests went");
  const auto arguments = std::make_shared<RequestsArguments>();
  add_profile_file(*command, arguments->path);
  add_option({*command}, "--slowest", arguments->slowest, "Requests to show", CLI::Range(1, 100),
             Shown{fmt::format("N (default {})", arguments->slowest)});
  add_choice({*command}, "--by", arguments->order, {RequestOrder::e2e, RequestOrder::ttft, RequestOrder::itl},
             "Time from arrival to end (default e2e), to the first token, or between two tokens");
  add_format(*command, arguments->format, {"table", "json"});
  command->footer(
      "Examples:\n"
      "  minfer bench -p 64 -n 16 --parallel 8 --profile-out steps.jsonl\n"
      "  minfer profile requests steps.jsonl --slowest 3 --by ttft");
  command->callback([arguments] {
    require_profile(arguments->path);
    const SlowRequests found = slow_requests(arguments->path, arguments->order, arguments->slowest);
    if (!found.note.empty()) print_notice(found.note + "\n");
    print_output(arguments->format == "json" ? slow_requests_json(found)
                                             : slow_requests_text(found, is_terminal(stdout)));
  });
}

struct DiffArguments {
  DiffNames paths;
  DiffFormat format = DiffFormat::table;
  std::optional<double> fail_above;  ///< e.g. 0.03
};

void read_sums(const std::string& path, DiffSums& sums) {
  require_profile(path);
  read_profile(path, sums);
}

void run_diff(const DiffArguments& arguments) {
  DiffSums a, b;
  read_sums(arguments.paths.a, a);
  read_sums(arguments.paths.b, b);
  const ProfileDiff diff = diff_of(a, b);
  print_output(render_diff(diff, arguments.paths, arguments.format));
  if (arguments.fail_above && diff.step.change() > *arguments.fail_above) {
    fail("B is slower by {:.2f} % a token, more than {:.2f} %{}", 100.0 * diff.step.change(),
         100.0 * *arguments.fail_above,
         diff.step.is_certain()      ? ""
         : diff.step.margin_us < 0.0 ? " (the spread is not known)"
                                     : " (within the spread)");
  }
}

void add_diff_command(CLI::App& profile) {
  CLI::App* diff =
      profile.add_subcommand("diff", "What changed from one profile to another, and what explains it");
  const auto arguments = std::make_shared<DiffArguments>();
  const OptionGroup group{*diff};
  add_option(group, "a", arguments->paths.a, "Profile file of the baseline", Shown{"A"})->required();
  add_option(group, "b", arguments->paths.b, "Profile file to compare with it", Shown{"B"})->required();
  add_choice(group, "-o,--output", arguments->format, {DiffFormat::table, DiffFormat::json, DiffFormat::md},
             "How to print it (default table)");
  add_fail_above(*diff, arguments->fail_above,
                 "Exit with code 1 if a token takes more than this much longer in B than in A, e.g. 3%");
  diff->footer(
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out before.jsonl\n"
      "  minfer bench -p 0 -n 16 --threads 1 --profile-out after.jsonl\n"
      "  minfer profile diff before.jsonl after.jsonl\n"
      "  minfer profile diff before.jsonl after.jsonl -o md");
  diff->callback([arguments] { run_diff(*arguments); });
}

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
  add_option({*command}, "-o,--output", arguments->out, out, Shown{"FILE"})->required();
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

void add_view_command(CLI::App& profile) {
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

void add_trace_command(CLI::App& profile) {
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

}  // namespace

void add_profile_command(CLI::App& app) {
  CLI::App* profile = app.add_subcommand("profile", "Read what the profiler wrote");
  profile->require_subcommand(1);
  profile->footer(
      "Examples:\n"
      "  minfer bench -p 64 -n 16 --parallel 8 --profile-out steps.jsonl\n"
      "  minfer profile explain steps.jsonl\n"
      "  minfer profile report steps.jsonl");
  add_diff_command(*profile);
  add_explain_command(*profile);
  CLI::App* report = profile->add_subcommand("report", "Where the time of the recorded steps went");
  const auto arguments = std::make_shared<ReportArguments>();
  ReportOptions& options = arguments->report;
  add_profile_file(*report, arguments->path);
  const OptionGroup group{*report};
  CLI::Option* step =
      add_option(group, "--step", arguments->step, "Show only the step of this number, as bars", Shown{"N"});
  add_choice(group, "-o,--output", options.format,
             {ReportFormat::table, ReportFormat::json, ReportFormat::csv, ReportFormat::md},
             "How to print it (default table); csv has only the ops");
  add_choice(group, "--view", options.view, {ReportView::flat, ReportView::top_down, ReportView::bottom_up},
             "flat: the whole report (default); top-down: phase, layers, op, kernel; bottom-up: kernel and "
             "the ops that call it");
  add_choice(group, "--sort", options.sort,
             {ReportSort::time, ReportSort::calls, ReportSort::mean, ReportSort::max, ReportSort::gbps,
              ReportSort::roofline, ReportSort::name},
             "Order of the ops, or of each level of a view (default time)");
  add_step_filter(*report, options.filter);
  add_option(group, "--op", options.op, "Only the op of this name", Shown{"NAME"});
  add_option(group, "--top", options.top, "Ops listed at most, or rows of each level of a view; 0 lists all",
             CLI::Range(0, 1'000'000), Shown{fmt::format("N (default {})", options.top)});
  for (CLI::Option* option : report->get_options()) {
    if (option->nonpositional() && option != report->get_help_ptr() && option != step) option->excludes(step);
  }
  report->footer(
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --profile-out steps.jsonl\n"
      "  minfer profile report steps.jsonl\n"
      "  minfer profile report steps.jsonl --sort calls --top 3 -o md\n"
      "  minfer profile report steps.jsonl --view top-down --phase decode\n"
      "  minfer profile report steps.jsonl --op qkv --steps 4:12 -o csv\n"
      "  minfer profile report steps.jsonl --step 8");
  report->callback([arguments] { run_report(*arguments); });
  add_requests_command(*profile);
  add_trace_command(*profile);
  add_view_command(*profile);
}

}  // namespace minfer
