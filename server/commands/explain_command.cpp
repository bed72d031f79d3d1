#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>

#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "profiling/findings/evidence.h"
#include "profiling/findings/findings_report.h"
#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"
#include "profiling/json/json_field.h"
#include "profiling/text/table.h"
#include "server/bench/http_client.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"
#include "server/tune/trial_session.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

struct ExplainArguments {
  std::string path;
  std::string url;
  int64_t last = 1'000;
  std::string format = "table";
  bool all = false;
  bool try_advice = false;
  double budget_s = 120.0;
  std::string model;
  std::optional<double> fail_above;  ///< e.g. 0.03
};

/// A running server's summary of its last steps.
Diagnosis diagnosis_of_server(const ExplainArguments& arguments) {
  const char* const key = std::getenv("MINFER_API_KEY");
  HttpClient client(arguments.url, {.bearer_token = key == nullptr ? "" : key});
  const HttpAnswer answer =
      client.ask({fmt::format("/profile/summary?last={}", arguments.last)}, 30, "no answer within 30 s");
  if (!answer.error.empty()) fail("{}: {}", arguments.url, answer.error);
  if (answer.status != 200)
    fail("{}: status {}: {}", arguments.url, answer.status, answer.body.substr(0, 200));
  simdjson::dom::parser parser;
  simdjson::dom::element json;
  if (parser.parse(answer.body).get(json) != simdjson::SUCCESS)
    fail("{}: the answer is no valid JSON", arguments.url);
  simdjson::dom::element report;
  if (json["report"].get(report) != simdjson::SUCCESS || report.is_null())
    fail("{}: the server has run no step yet", arguments.url);
  const JsonField field(report, arguments.url);
  return diagnosis_of(field["findings"]);
}

Diagnosis diagnosis_of_file(const std::string& path) {
  require_profile(path);
  Evidence reader;
  if (const std::string note = read_profile(path, reader); !note.empty()) print_notice(note + "\n");
  return diagnose(reader);
}

std::string rendered(const Diagnosis& diagnosis, const std::string& format, bool all) {
  if (format == "md") return findings_markdown(diagnosis, all);
  if (format == "table") return findings_text(diagnosis, is_terminal(stdout), all);
  std::string text;
  JsonText json(text);
  write_findings(json, diagnosis);
  return text + "\n";
}

constexpr int kTurns = 5;
/// The share of the time for options tried alone; the rest is for all options that helped together.
constexpr double kAloneShare = 0.7;

/// The figure to which a finding's gain refers.
std::string figure_of(const Finding& finding) {
  if (finding.of != GainOf::latency) return "busy_s";
  if (finding.rule == "prefill starves decode" || finding.rule == "step times mispredicted")
    return "p99_itl_ms";
  return "mean_e2e_ms";
}

/// Each option once, for the finding that names it first.
std::vector<KeptTrial> trials_among(const Diagnosis& diagnosis) {
  std::vector<KeptTrial> trials;
  for (const Finding& finding : diagnosis.findings) {
    const bool is_fitted = std::ranges::any_of(std::array{false, true}, [&](bool on_gpu) {
      const GainRange likely = likely_gain(finding.gain, on_gpu);
      return likely.from == finding.gain_from && likely.to == finding.gain_to;
    });
    for (const std::string& option : finding.trials)
      if (std::ranges::count(trials, option, &KeptTrial::option) == 0)
        trials.push_back({.option = option,
                          .finding = std::string(finding.rule),
                          .figure = figure_of(finding),
                          .is_fitted = is_fitted,
                          .estimated = finding.gain,
                          .estimated_from = finding.gain_from,
                          .estimated_to = finding.gain_to});
  }
  return trials;
}

/// Options of the best trial, and of others that helped and set something else.
std::vector<std::string> all_that_helped(const std::vector<KeptTrial>& trials) {
  std::vector<std::string> options, names;
  for (const KeptTrial& trial : trials) {
    const std::vector<std::string> words = words_of(trial.option);
    if (!trial.gain.helped() || std::ranges::count(names, words.front()) > 0) continue;
    names.push_back(words.front());
    options.insert(options.end(), words.begin(), words.end());
  }
  return options;
}

/// The contents of a report.
struct Tried {
  std::vector<KeptTrial> trials;               ///< best first
  std::vector<Alternative> alternatives = {};  ///< as recorded, then by trial as they were tried
  std::vector<Alternative> together = {};  ///< as recorded, and with all that helped; empty: at most one did
  MeasuredGain together_gain = {};
  std::vector<std::string> best = {};  ///< options
};

Json json_of(const Tried& tried, const TrialSession& session, const std::string& profile) {
  Json json{{"profile", profile}, {"requests", session.num_requests()}, {"trials", Json::array()}};
  for (const KeptTrial& trial : tried.trials) {
    const auto runs = std::ranges::find(tried.alternatives, words_of(trial.option), &Alternative::options);
    json["trials"].push_back({{"option", trial.option},
                              {"finding", trial.finding},
                              {"changes_answers", changes_answers(trial.option)},
                              {"figure", trial.figure},
                              {"estimated_from", trial.estimated_from},
                              {"estimated_to", trial.estimated_to},
                              {"measured", gain_json(trial.gain)},
                              {"error", trial.error},
                              {"runs", runs->runs}});
  }
  json["as_recorded"] = tried.alternatives.front().runs;
  if (!tried.together.empty())
    json["together"] = {{"measured", gain_json(tried.together_gain)}, {"runs", tried.together.back().runs}};
  json["options"] = fmt::format("{}", fmt::join(tried.best, " "));
  json["command"] = session.command_line(tried.best);
  return json;
}

Table table_of(const Tried& tried) {
  Table table{.title = "Tried", .columns = {"option", "estimated", "measured", "of"}};
  for (const KeptTrial& trial : tried.trials) {
    table.rows.push_back(
        {trial.option,
         fmt::format("{:.0f} to {:.0f} %", 100.0 * trial.estimated_from, 100.0 * trial.estimated_to),
         trial.gain.text(), words_of_figure(trial.figure)});
    std::string below = fmt::format("for {}", trial.finding);
    if (changes_answers(trial.option)) below += "; it changes answers";
    if (!trial.gain.helped()) below += trial.error.empty() ? "; it did not help" : "; " + trial.error;
    table.below.push_back(below);
  }
  return table;
}

std::string text_of(const Tried& tried, const TrialSession& session, const std::string& format) {
  std::string text = wrapped(fmt::format("{} of {} requests were replayed at their times, with and without "
                                         "each option in turns, each run in a process of its own.",
                                         session.num_requests(), session.load().requests.size()),
                             kTextColumns);
  const Table table = table_of(tried);
  text += format == "md" ? "\n\n" + markdown_table(table)
                         : "\n\n" + text_table(table, kTextColumns, LongNames::wrap);
  if (tried.best.empty())
    return text + "\nNothing that was tried helped: the options stay as they were recorded.\n";
  if (!tried.together.empty())
    text += fmt::format("\nTogether: {}: {}\n", tried.together.back().text(), tried.together_gain.text());
  return text + fmt::format("\nBest of these:\n  {}\n", session.command_line(tried.best));
}

/// Runs the recorded load with and without each option that findings advise, in turns, in processes of their own; then
/// with all options that helped together. Returns measured beside estimated gains, best first, and the resulting command
/// line. Throws FileError if the profile's load cannot be run again, Error if it does not run as it was recorded.
std::string try_advice(const Diagnosis& diagnosis, const ExplainArguments& arguments) {
  Tried tried{.trials = trials_among(diagnosis)};
  if (tried.trials.empty()) {
    return arguments.format == "json"
               ? Json{{"profile", arguments.path}, {"trials", Json::array()}}.dump(2) + "\n"
               : "Nothing to try: no finding advises an option of minfer.\n";
  }
  const double runs = static_cast<double>(tried.trials.size() + 1);
  TrialSession session({.profile = arguments.path,
                        .model = arguments.model,
                        .run_s = std::max(2.0, kAloneShare * arguments.budget_s / (3.0 * runs)),
                        .budget_s = arguments.budget_s});
  tried.alternatives = session.compare({}, tried.trials, kTurns, kAloneShare);
  std::ranges::stable_sort(tried.trials, std::ranges::greater{}, [](const KeptTrial& trial) {
    return trial.gain.helped() ? trial.gain.median : -1.0;
  });
  if (tried.trials.front().gain.helped()) {
    const KeptTrial& first = tried.trials.front();
    tried.best = words_of(first.option);
    if (const std::vector<std::string> all = all_that_helped(tried.trials); all.size() > tried.best.size()) {
      std::vector<KeptTrial> together{
          {.option = fmt::format("{}", fmt::join(all, " ")), .figure = first.figure}};
      tried.together = session.compare({}, together, kTurns, 1.0);
      tried.together_gain = together.front().gain;
      if (tried.together_gain.median >= first.gain.median) tried.best = all;
    }
  }
  return arguments.format == "json" ? json_of(tried, session, arguments.path).dump(2) + "\n"
                                    : text_of(tried, session, arguments.format);
}

void run_explain(const ExplainArguments& arguments) {
  if (arguments.path.empty() == arguments.url.empty()) fail("profile explain: give either FILE or --url");
  const Diagnosis diagnosis =
      arguments.url.empty() ? diagnosis_of_file(arguments.path) : diagnosis_of_server(arguments);
  const std::string text = rendered(diagnosis, arguments.format, arguments.all);
  if (!arguments.try_advice) print_output(text);
  if (arguments.try_advice && arguments.format != "json") print_output(text + "\n");
  if (arguments.try_advice) print_output(try_advice(diagnosis, arguments));
  if (arguments.fail_above && diagnosis.worst() > *arguments.fail_above) {
    fail("{} is worth {:.2f} %, more than {:.2f} %", diagnosis.findings.front().rule,
         100.0 * diagnosis.worst(), 100.0 * *arguments.fail_above);
  }
}

}  // namespace

void add_explain_command(CLI::App& profile) {
  CLI::App* explain =
      profile.add_subcommand("explain", "Why a run was not faster, and what to try: findings, worst first");
  const auto arguments = std::make_shared<ExplainArguments>();
  const OptionGroup group{*explain};
  add_option(group, "file", arguments->path, "Profile file, as --profile-out writes it", Shown{"FILE"});
  CLI::Option* url =
      add_option(group, "--url", arguments->url,
                 "Ask the server at http://HOST:PORT instead (its key: MINFER_API_KEY). It knows its "
                 "last steps, and the last 4,096 of the requests that have ended since",
                 Shown{"URL"});
  add_option(group, "--last", arguments->last, "Steps of the server to look at", CLI::PositiveNumber, url,
             Shown{fmt::format("N (default {})", arguments->last)});
  add_format(*explain, arguments->format, {"table", "json", "md"});
  explain->add_flag("--all", arguments->all, "Also show findings of 5 % and less (JSON always has them)");
  CLI::Option* try_it =
      add_flag(group, "--try", arguments->try_advice,
               "Replay the recorded load with and without each option that findings advise, each run "
               "in a process of its own, and show the gain of each option")
          ->excludes(url);
  const auto take_budget = [arguments](const std::string& text) {
    arguments->budget_s = seconds_of("--budget", text);
  };
  add_taken(group, "--budget", take_budget, "Approximate time that --try may take", try_it,
            Shown{"TIME [120s]"});
  add_option(group, "-m,--model", arguments->model, "Model that --try runs (default: the record's)", try_it,
             Shown{"MODEL"});
  add_fail_above(*explain, arguments->fail_above, "Exit with code 1 if a finding is worth more, e.g. 5%");
  explain->footer(
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --parallel 8 --profile-out steps.jsonl\n"
      "  minfer profile explain steps.jsonl\n"
      "  minfer profile explain steps.jsonl -o md --fail-above 95%\n"
      "  minfer profile explain steps.jsonl --try --budget 60s");
  explain->callback([arguments] { run_explain(*arguments); });
}

}  // namespace minfer
