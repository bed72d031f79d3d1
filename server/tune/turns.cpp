#include "server/tune/turns.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "server/bench/bench_output.h"

namespace minfer {

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
