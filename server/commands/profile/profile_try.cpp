#include "server/commands/profile/profile_try.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"
#include "profiling/report/text/table.h"
#include "server/tune/trial_session.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

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

Json gain_json(const MeasuredGain& gain) {
  return {{"median", gain.median},
          {"least", gain.least},
          {"most", gain.most},
          {"turns", gain.turns},
          {"helped", gain.helped()}};
}

/// The contents of a report.
struct Tried {
  std::vector<KeptTrial> trials;               ///< best first
  std::vector<Alternative> alternatives = {};  ///< as recorded, then by trial as they were tried
  std::vector<Alternative> together = {};  ///< as recorded, and with all that helped; empty: at most one did
  MeasuredGain together_gain = {};
  std::vector<std::string> best = {};  ///< options
};

Json json_of(const Tried& tried, const TrialSession& session, const TryOptions& options) {
  Json json{
      {"profile", options.profile}, {"requests", session.runner().num_requests()}, {"trials", Json::array()}};
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
  json["command"] = session.runner().command_line(tried.best);
  return json;
}

Table table_of(const Tried& tried) {
  Table table{.title = "Tried", .columns = {"option", "estimated", "measured", "of"}, .rows = {}};
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
  const ReplayRunner& runner = session.runner();
  std::string text = wrapped(fmt::format("{} of {} requests were replayed at their times, with and without "
                                         "each option in turns, each run in a process of its own.",
                                         runner.num_requests(), runner.load().requests.size()),
                             kTextColumns);
  const Table table = table_of(tried);
  text += format == "md" ? "\n\n" + markdown_table(table)
                         : "\n\n" + text_table(table, kTextColumns, LongNames::wrap);
  if (tried.best.empty())
    return text + "\nNothing that was tried helped: the options stay as they were recorded.\n";
  if (!tried.together.empty())
    text += fmt::format("\nTogether: {}: {}\n", tried.together.back().text(), tried.together_gain.text());
  return text + fmt::format("\nBest of these:\n  {}\n", runner.command_line(tried.best));
}

}  // namespace

std::string try_advice(const Diagnosis& diagnosis, const TryOptions& options) {
  Tried tried{.trials = trials_among(diagnosis)};
  if (tried.trials.empty()) {
    return options.format == "json"
               ? Json{{"profile", options.profile}, {"trials", Json::array()}}.dump(2) + "\n"
               : "Nothing to try: no finding advises an option of minfer.\n";
  }
  const double runs = static_cast<double>(tried.trials.size() + 1);
  TrialSession session({.profile = options.profile,
                        .model = options.model,
                        .run_s = std::max(2.0, kAloneShare * options.budget_s / (3.0 * runs))},
                       options.budget_s);
  tried.alternatives.emplace_back();
  for (const KeptTrial& trial : tried.trials)
    tried.alternatives.push_back({.options = words_of(trial.option)});
  session.take(tried.alternatives, kTurns, kAloneShare);
  const Alternative& base = tried.alternatives.front();
  for (size_t i = 0; i < tried.trials.size(); ++i) {
    KeptTrial& trial = tried.trials[i];
    trial.error = tried.alternatives[i + 1].error;
    trial.gain = measured_gain(base, tried.alternatives[i + 1], trial.figure);
  }
  session.keep(base, tried.trials);
  std::ranges::stable_sort(tried.trials, std::ranges::greater{}, [](const KeptTrial& trial) {
    return trial.gain.helped() ? trial.gain.median : -1.0;
  });
  if (tried.trials.front().gain.helped()) {
    const KeptTrial& first = tried.trials.front();
    tried.best = words_of(first.option);
    if (const std::vector<std::string> all = all_that_helped(tried.trials); all.size() > tried.best.size()) {
      tried.together = {{}, {.options = all}};
      session.take(tried.together, kTurns, 1.0);
      tried.together_gain = measured_gain(tried.together.front(), tried.together.back(), first.figure);
      session.keep(
          base,
          {{.option = tried.together.back().text(), .figure = first.figure, .gain = tried.together_gain}});
      if (tried.together_gain.median >= first.gain.median) tried.best = all;
    }
  }
  return options.format == "json" ? json_of(tried, session, options).dump(2) + "\n"
                                  : text_of(tried, session, options.format);
}

}  // namespace minfer
