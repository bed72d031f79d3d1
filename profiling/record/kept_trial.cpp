#include "profiling/record/kept_trial.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace minfer {

std::string MeasuredGain::text() const {
  if (turns == 0) return "did not run";
  const double from = std::round(100.0 * least), to = std::round(100.0 * most);
  return fmt::format("{}{:.0f} % ({} turn{})", from == to ? "" : fmt::format("{:.0f} to ", from), to, turns,
                     turns == 1 ? "" : "s");
}

std::string KeptTrial::text() const {
  return fmt::format("{}{}: {}, {}", option, beside.empty() ? "" : " beside " + beside,
                     error.empty() ? gain.text() + " of the " + words_of_figure(figure) : error, date);
}

std::string words_of_figure(const std::string& figure) {
  for (const auto& [name, words] : {std::pair{"busy_s", "time with work"},
                                    {"mean_e2e_ms", "time of a request"},
                                    {"output_throughput", "time for a token"},
                                    {"p99_itl_ms", "time between tokens, p99"},
                                    {"p99_ttft_ms", "time to the first token, p99"}})
    if (figure == name) return words;
  return figure;
}

}  // namespace minfer
