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
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

/// No run is ended for its length before this time: loading a model takes a while.
constexpr double kPatienceS = 60.0;

/// A line that rewrites itself; nothing if standard error is no terminal.
void show(const std::string& text) {
  if (is_terminal(stderr)) print_notice(text.empty() ? "\r\x1b[K" : "\r\x1b[K" + text);
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

TrialSession::TrialSession(ReplayRunner::Options options, double budget_s)
    : runner_(std::move(options)),
      begin_ns_(now_ns()),
      budget_s_(budget_s),
      profile_bytes_(std::filesystem::file_size(runner_.load().path)) {}

double TrialSession::seconds_left() const {
  return budget_s_ - static_cast<double>(now_ns() - begin_ns_) * 1e-9;
}

void TrialSession::keep(const Alternative& base, std::vector<KeptTrial> trials) {
  const RecordedLoad& load = runner_.load();
  std::string lines, problem = load.note;
  for (KeptTrial& trial : trials) {
    if (trial.gain.turns == 0 && trial.error.empty()) continue;
    if (!base.options.empty()) trial.beside = base.text();
    if (!base.runs.empty()) trial.device = base.runs.front().value("device", "");
    trial.date = fmt::format("{:%F}", fmt::gmtime(std::time(nullptr)));
    append_line(lines, trial);
  }
  std::error_code error;
  if (std::filesystem::file_size(load.path, error) != profile_bytes_) problem = "the file has changed";
  if (problem.empty() && !(std::ofstream(load.path, std::ios::binary | std::ios::app) << lines << std::flush))
    problem = std::strerror(errno);
  profile_bytes_ += lines.size();
  if (!problem.empty())
    print_notice(fmt::format("minfer: warning: {}: the trials are not kept: {}\n", load.path, problem));
}

void TrialSession::take(std::vector<Alternative>& alternatives, int most_turns, double share) {
  const double kept_s = (1.0 - share) * std::max(0.0, seconds_left());
  const auto run = [&](const std::vector<std::string>& options) {
    if (interrupted()) fail("interrupted");
    show(fmt::format("{} ({:.0f} s left)", Alternative{.options = options}.text(),
                     std::max(0.0, seconds_left())));
    nlohmann::json figures = runner_.run(options, std::max(kPatienceS, budget_s_));
    if (interrupted()) fail("interrupted");  // which ended the run too
    return figures;
  };
  try {
    take_turns(alternatives, run, most_turns, [&] { return seconds_left() - kept_s; });
  } catch (const Error&) {
    show("");
    if (!interrupted()) throw;
  }
  show("");
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

}  // namespace minfer
