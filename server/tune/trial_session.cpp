#include "server/tune/trial_session.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/clock.h"
#include "kernels/base/error.h"
#include "profiling/json/lines.h"
#include "server/bench/bench_output.h"
#include "server/tune/child_process.h"

namespace minfer {
namespace {

/// No run is ended for its length before this time: loading a model takes a while.
constexpr double kPatienceS = 60.0;

/// The number of requests from which on a median says something.
constexpr size_t kFewestRequests = 8;

std::string option_name(std::string_view name) {
  std::string option = "--" + std::string(name);
  std::ranges::replace(option, '_', '-');
  return option;
}

/// The last line of minfer's message at its end.
std::string last_line(std::string text) {
  constexpr std::string_view kError = "minfer: error: ";
  while (text.ends_with('\n'))
    text.pop_back();
  text = text.substr(text.rfind('\n') + 1);
  return text.starts_with(kError) ? text.substr(kError.size()) : text;
}

/// The options without those that a later option of the same name overrides, then the later ones.
std::vector<std::string> overridden(const std::vector<std::string>& options,
                                    const std::vector<std::string>& later) {
  const auto stem = [](std::string_view option) {
    return option.starts_with("--no-") ? "--" + std::string(option.substr(5)) : std::string(option);
  };
  std::vector<std::string> left;
  bool is_dropped = false;
  for (const std::string& option : options) {
    if (option.starts_with("--")) {
      is_dropped =
          std::ranges::any_of(later, [&](const std::string& other) { return stem(other) == stem(option); });
    }
    if (!is_dropped) left.push_back(option);
  }
  left.insert(left.end(), later.begin(), later.end());
  return left;
}

}  // namespace

double seconds_of(const std::string& option, const std::string& text) {
  double number = 0.0;
  const char* const end = text.data() + text.size();
  const auto [parsed, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(parsed, static_cast<size_t>(end - parsed));
  if (error != std::errc() || !(number > 0.0) || number > 1e6 || (unit != "" && unit != "s" && unit != "m"))
    fail("{}: \"{}\", expected a time such as 120s or 5m", option, text);
  return unit == "m" ? 60.0 * number : number;
}

std::vector<std::string> words_of(const std::string& trial) {
  std::istringstream stream(trial);
  return {std::istream_iterator<std::string>(stream), {}};
}

std::vector<std::string> recorded_options(const ProfileHeader& header) {
  // The record's other values are measured, or follow from the model.
  static constexpr auto kValues = std::to_array<std::string_view>(
      {"max_model_len", "max_num_seqs", "max_num_batched_tokens", "tensor_parallel_size", "block_size",
       "num_blocks", "kv_cache_dtype", "quantization", "scheduling_policy", "target_itl_ms",
       "stream_interval", "num_state_copies", "speculative", "speculative_model", "num_speculative_tokens",
       "ngram_prompt_lookup_max", "ngram_prompt_lookup_min"});
  static constexpr std::array<std::string_view, 4> kFlags{"enable_prefix_caching", "cuda_graphs",
                                                          "enable_chunked_prefill", "adaptive_speculation"};
  std::vector<std::string> options{"--device", header.backend};
  if (header.backend == "cpu")
    options.insert(options.end(), {"--threads", std::to_string(header.threads)});
  else
    options.insert(options.end(), {"--dtype", std::string(name(header.activation_dtype))});
  for (const auto& [option, value] : header.options) {
    if (std::ranges::count(kValues, option) > 0) options.insert(options.end(), {option_name(option), value});
    if (std::ranges::count(kFlags, option) > 0)
      options.push_back(option_name(value == "true" ? option : "no_" + option));
  }
  return options;
}

TrialSession::TrialSession(Options options)
    : options_(std::move(options)),
      load_(read_recorded_load(options_.profile)),
      begin_ns_(now_ns()),
      profile_bytes_(std::filesystem::file_size(load_.path)) {
  model_ = options_.model.empty() ? load_.header.model : options_.model;
  if (model_ == "the embedded demo model") model_.clear();  // what runs where none is named
  const std::vector<EndedRequest>& requests = load_.requests;
  num_requests_ = requests.size();
  if (options_.run_s > 0.0) {
    const int64_t last_ns = requests.front().arrival_ns + static_cast<int64_t>(options_.run_s * 1e9);
    const auto end = std::ranges::upper_bound(requests, last_ns, {}, &EndedRequest::arrival_ns);
    num_requests_ =
        std::min(num_requests_, std::max(kFewestRequests, static_cast<size_t>(end - requests.begin())));
  }
}

nlohmann::json TrialSession::run(const std::vector<std::string>& options) const {
  std::vector<std::string> arguments = words_of(
      fmt::format("/proc/self/exe bench --replay-speed {} --num-prompts {} --num-warmups 1 -o json --replay",
                  options_.speed, num_requests_));
  arguments.push_back(options_.profile);
  if (!model_.empty()) arguments.insert(arguments.end(), {"--model", model_});
  for (const std::vector<std::string>& more :
       {overridden(recorded_options(load_.header), options), options_.bench})
    arguments.insert(arguments.end(), more.begin(), more.end());
  const double timeout_s = std::max(kPatienceS, options_.budget_s);
  const ChildResult result = run_child(arguments, timeout_s);
  if (result.timed_out) fail("took longer than {:.0f} s", timeout_s);
  if (result.status != 0) fail("{}", last_line(result.errors));
  const nlohmann::json report = nlohmann::json::parse(result.output, nullptr, false);
  if (!report.is_array() || report.empty() || !report[0].contains("replay"))
    fail("minfer bench wrote no report: {}", last_line(result.errors));
  nlohmann::json figures = report[0]["replay"]["replayed"];
  figures["device"] = report[0]["replay"]["device"];
  if (report[0].contains("request_goodput")) figures["goodput"] = report[0]["request_goodput"];
  return figures;
}

std::string TrialSession::command_line(const std::vector<std::string>& options) const {
  return fmt::format("minfer serve {}{}{}", model_, model_.empty() ? "" : " ",
                     fmt::join(overridden(recorded_options(load_.header), options), " "));
}

std::vector<Alternative> TrialSession::compare(const std::vector<std::string>& base,
                                               std::vector<KeptTrial>& trials, int most_turns, double share,
                                               bool more_is_better) {
  std::vector<Alternative> all{{.options = base}};
  for (const KeptTrial& trial : trials)
    all.push_back({.options = overridden(base, words_of(trial.option))});
  take(all, most_turns, share);
  for (size_t i = 0; i < trials.size(); ++i) {
    trials[i].gain = measured_gain(all[0], all[i + 1], trials[i].figure, more_is_better);
    trials[i].error = all[i + 1].error;
  }
  keep(all[0], trials);
  return all;
}

double TrialSession::seconds_left() const {
  return options_.budget_s - static_cast<double>(now_ns() - begin_ns_) * 1e-9;
}

void TrialSession::keep(const Alternative& base, std::vector<KeptTrial> trials) {
  std::string lines, problem = load_.note;
  for (KeptTrial& trial : trials) {
    if (trial.gain.turns == 0 && trial.error.empty()) continue;
    if (!base.options.empty()) trial.beside = base.text();
    if (!base.runs.empty()) trial.device = base.runs.front().value("device", "");
    trial.date = fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)));
    append_line(lines, trial);
  }
  std::error_code error;
  if (std::filesystem::file_size(load_.path, error) != profile_bytes_) problem = "the file has changed";
  if (problem.empty() &&
      !(std::ofstream(load_.path, std::ios::binary | std::ios::app) << lines << std::flush))
    problem = std::strerror(errno);
  profile_bytes_ += lines.size();
  if (!problem.empty())
    print_notice(fmt::format("minfer: warning: {}: the trials are not kept: {}\n", load_.path, problem));
}

void TrialSession::take(std::vector<Alternative>& alternatives, int most_turns, double share) {
  const double kept_s = (1.0 - share) * std::max(0.0, seconds_left());
  const auto run = [&](const std::vector<std::string>& options) {
    if (interrupted()) fail("interrupted");
    show_progress(fmt::format("{} ({:.0f} s left)", Alternative{.options = options}.text(),
                              std::max(0.0, seconds_left())));
    nlohmann::json figures = this->run(options);
    if (interrupted()) fail("interrupted");  // which ended the run too
    return figures;
  };
  try {
    take_turns(alternatives, run, most_turns, [&] { return seconds_left() - kept_s; });
  } catch (const Error&) {
    show_progress("");
    if (!interrupted()) throw;
  }
  show_progress("");
  for (Alternative& alternative : alternatives)
    if (alternative.error == "interrupted") alternative.error.clear();
}

std::string Alternative::text() const {
  return options.empty() ? "as recorded" : fmt::format("{}", fmt::join(options, " "));
}

void take_turns(std::span<Alternative> alternatives, const RunLoad& run, int most_turns,
                const std::function<double()>& seconds_left) {
  for (int turn = 0; turn < most_turns; ++turn) {
    const double begin_s = seconds_left();
    for (Alternative& alternative : alternatives) {
      if (!alternative.error.empty()) continue;
      try {
        alternative.runs.push_back(run(alternative.options));
      } catch (const Error& error) {
        if (&alternative == alternatives.data()) throw;
        alternative.error = error.what();
      }
    }
    if (const double end_s = seconds_left(); end_s < begin_s - end_s) return;
  }
}

MeasuredGain measured_gain(const Alternative& base, const Alternative& other, std::string_view figure,
                           bool more_is_better) {
  std::vector<double> gains;
  for (size_t turn = 0; turn < std::min(base.runs.size(), other.runs.size()); ++turn) {
    const double before = base.runs[turn].at(figure).get<double>();
    const double after = other.runs[turn].at(figure).get<double>();
    const double whole = more_is_better ? after : before, part = more_is_better ? before : after;
    gains.push_back(whole > 0.0 ? 1.0 - part / whole : 0.0);
  }
  if (gains.empty()) return {};
  const auto [least, most] = std::ranges::minmax(gains);
  return {
      .median = median_of(gains), .least = least, .most = most, .turns = static_cast<int64_t>(gains.size())};
}

nlohmann::ordered_json gain_json(const MeasuredGain& gain) {
  return {{"median", gain.median},
          {"least", gain.least},
          {"most", gain.most},
          {"turns", gain.turns},
          {"helped", gain.helped()}};
}

}  // namespace minfer
