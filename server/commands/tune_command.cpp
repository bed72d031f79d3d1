#include <algorithm>
#include <memory>

#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "profiling/findings/rules.h"
#include "profiling/text/table.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/terminal/terminal.h"
#include "server/tune/trial_session.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTurnsOfAStep = 2;
constexpr int kTurnsAtTheEnd = 5;
/// The share of the time for the comparison at the end.
constexpr double kEndShare = 0.25;

struct TuneArgs {
  std::string profile;
  std::string model;
  std::string objective = "throughput";
  double budget_s = 300.0;
  std::string speed;
  std::string format = "table";
  bool lossy = false;
};

/// The figure to improve.
struct Objective {
  std::string figure;  ///< of RequestFigures::json()
  bool more_is_better = false;
  std::string speed = "1";              ///< of arrivals
  std::vector<std::string> bench = {};  ///< options of bench that give the figure
};

Objective objective_of(const std::string& text) {
  if (text == "throughput") return {.figure = "output_throughput", .more_is_better = true, .speed = "inf"};
  if (text == "p99-itl") return {.figure = "p99_itl_ms"};
  if (text == "p99-ttft") return {.figure = "p99_ttft_ms"};
  constexpr std::string_view kGoodput = "goodput:";
  if (!text.starts_with(kGoodput) || text.size() == kGoodput.size()) {
    fail(
        "--objective: \"{}\", expected throughput, p99-itl, p99-ttft or goodput:METRIC:MS[,METRIC:MS] such "
        "as goodput:ttft:500,tpot:20",
        text);
  }
  std::string limits = text.substr(kGoodput.size());
  std::ranges::replace(limits, ',', ' ');
  return {.figure = "goodput", .more_is_better = true, .bench = words_of("--goodput " + limits)};
}

/// An option and the values that it gets in turns; "" stands for the value that it has already.
using Candidates = std::vector<std::string>;

/// Options that matter to the speed of a load; those that usually matter most come first.
std::vector<Candidates> candidates_for(const ProfileHeader& header, bool lossy) {
  const bool on_device = header.backend != "cpu";
  const auto number = [&](std::string_view name) {
    const auto found =
        std::ranges::find(header.options, name, [](const auto& option) { return option.first; });
    return found == header.options.end() ? 0L : std::strtol(found->second.c_str(), nullptr, 10);
  };
  const auto around = [&](const char* option, std::string_view name) {
    Candidates values;
    for (const auto& [times, by] : {std::pair{4L, 1L}, {2L, 1L}, {1L, 2L}, {1L, 4L}})
      if (const int64_t value = number(name) * times / by; value > 0)
        values.push_back(fmt::format("{} {}", option, value));
    return values;
  };
  std::vector<Candidates> all{around("--max-num-seqs", "max_num_seqs"),
                              around("--max-num-batched-tokens", "max_num_batched_tokens"),
                              {"--target-itl-ms auto", "--target-itl-ms 0"},
                              {"--scheduling-policy shortest", "--scheduling-policy fcfs"},
                              {"--stream-interval 1", "--stream-interval 8"},
                              {"--speculative ngram", "--speculative off"}};
  if (!on_device) {
    Candidates threads{fmt::format("--threads {}", std::max(1, header.cores))};
    if (header.cores > 1) threads.push_back(fmt::format("--threads {}", header.cores - 1));
    all.insert(all.begin(), threads);
  }
  if (lossy) {
    all.insert(all.begin(), {fmt::format("--kv-cache-dtype {}", on_device ? "fp8" : "f16")});
    if (on_device) all.insert(all.begin(), {"--quantization fp8"});
  }
  return all;
}

void run_tune(const TuneArgs& args) {
  require_profile(args.profile);
  const Objective objective = objective_of(args.objective);
  const std::string& speed = args.speed.empty() ? objective.speed : args.speed;
  TrialSession session({.profile = args.profile,
                        .model = args.model,
                        .speed = speed,
                        .bench = objective.bench,
                        .run_s = std::max(2.0, args.budget_s / 60.0),
                        .budget_s = args.budget_s});
  std::vector<Candidates> candidates = candidates_for(session.load().header, args.lossy);
  std::vector<std::string> best;
  Json steps = Json::array();
  Table table{.title = "Tuned for " + args.objective, .columns = {"option", "gain", ""}};
  for (size_t i = 0; i < candidates.size() && !session.interrupted(); ++i) {
    std::vector<KeptTrial> trials;
    for (const std::string& option : candidates[i])
      trials.push_back({.option = option, .figure = objective.figure});
    const double share = (1.0 - kEndShare) / static_cast<double>(candidates.size() - i);
    const std::vector<Alternative> runs =
        session.compare(best, trials, kTurnsOfAStep, share, objective.more_is_better);
    double most = 0.0;
    const size_t first_row = table.rows.size();
    size_t winner = trials.size();
    for (size_t k = 0; k < trials.size(); ++k) {
      const auto& [option, error, gain] = std::tie(trials[k].option, trials[k].error, trials[k].gain);
      table.rows.push_back({option, error.empty() ? gain.text() : "does not run", ""});
      table.below.push_back(error);
      steps.emplace_back(Json{{"option", option}, {"error", error}}).update(gain_json(gain));
      if (gain.helped() && gain.median > most) std::tie(winner, most) = std::pair(k, gain.median);
    }
    if (winner == trials.size()) continue;
    best = runs[winner + 1].options;
    table.rows[first_row + winner].back() = "kept";
  }
  MeasuredGain whole;
  if (!best.empty()) {
    std::vector<KeptTrial> all{
        {.option = fmt::format("{}", fmt::join(best, " ")), .figure = objective.figure}};
    session.compare({}, all, kTurnsAtTheEnd, 1.0, objective.more_is_better);
    whole = all.front().gain;
  }
  const std::string command = session.command_line(best);
  if (args.format == "json") {
    const Json report{{"profile", args.profile},
                      {"objective", args.objective},
                      {"figure", objective.figure},
                      {"requests", session.num_requests()},
                      {"replay_speed", speed},
                      {"steps", steps},
                      {"options", fmt::format("{}", fmt::join(best, " "))},
                      {"gain", gain_json(whole)},
                      {"command", command}};
    print_output(report.dump(2) + "\n");
  } else {
    print_output(text_table(table, kTextColumns, LongNames::wrap));
    print_output(best.empty()
                     ? "\nNothing that was tried helped: the options stay as they were recorded.\n"
                     : fmt::format("\nAll kept options, against the recorded ones: {}\n", whole.text()));
    print_output(fmt::format("  {}\n", command));
  }
  if (session.interrupted()) end_as_interrupted();
}

}  // namespace

void add_tune_command(CLI::App& app) {
  CLI::App* tune =
      app.add_subcommand("tune", "Find the options that serve a recorded load best on this machine");
  const auto args = std::make_shared<TuneArgs>();
  const OptionGroup group{*tune};
  add_option(group, "--replay", args->profile, "Profile of the load (--profile-out of serve, bench or run)",
             existing_file(), Shown{"FILE"})
      ->required();
  add_option(group, "-m,--model", args->model, "Model to run (default: the record's)", Shown{"MODEL"});
  add_option(group, "--objective", args->objective,
             "Figure to improve: throughput (all requests at once), p99-itl, p99-ttft, or "
             "goodput:METRIC:MS[,METRIC:MS] of ttft, tpot and e2el (requests at their times)",
             Shown{"GOAL [throughput]"});
  add_option(group, "--replay-speed", args->speed,
             "Requests arrive this many times as fast as recorded, or inf: all at once", Shown{"X|inf"});
  const auto take_budget = [args](const std::string& text) { args->budget_s = seconds_of("--budget", text); };
  add_taken(group, "--budget", take_budget, "Approximate time that it may take", Shown{"TIME [5m]"});
  tune->add_flag("--lossy", args->lossy,
                 "Also try options that change what the model computes: types of weights and KV cache");
  add_format(*tune, args->format, {"table", "json"});
  tune->footer(
      "Each option is tried at a few values, each run in a process of its own, in turns with the best so "
      "far;\n"
      "one that is better in every turn is kept. A server in use is not touched.\n\n"
      "Examples:\n"
      "  minfer bench -p 0 -n 16 --parallel 8 --profile-out steps.jsonl\n"
      "  minfer tune --replay steps.jsonl --budget 20s");
  tune->callback([args] { run_tune(*args); });
}

}  // namespace minfer
