#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/findings/kept_trial.h"

namespace minfer {

/// Options that a load is run with, behind those of its record, and the figures of each run.
struct Alternative {
  std::vector<std::string> options;       ///< e.g. {"--threads", "2"}; none: as recorded
  std::vector<nlohmann::json> runs = {};  ///< RequestFigures::json(), one a turn
  std::string error = {};                 ///< why it could not run: it has no further turn

  std::string text() const;  ///< "--threads 2", "as recorded"
};

/// Runs the load once and returns its figures. Throws Error if it cannot run with these options.
using RunLoad = std::function<nlohmann::json(const std::vector<std::string>& options)>;

/// Runs all alternatives in turns: what drifts on the machine meets each of them alike. One turn at the least; then more, up to
/// `most_turns`, while `seconds_left()` is more than a turn takes. Throws what the first one throws, which the others are compared with.
void take_turns(std::span<Alternative> alternatives, const RunLoad& run, int most_turns,
                const std::function<double()>& seconds_left);

/// By a figure of which less is better, such as "busy_s", or with `more_is_better` one such as "output_throughput".
MeasuredGain measured_gain(const Alternative& base, const Alternative& other, std::string_view figure,
                           bool more_is_better = false);

}  // namespace minfer
