#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "profiling/findings/kept_trial.h"

namespace minfer {

/// Options with which a load is run, added to its record's options, and the figures of each run.
struct Alternative {
  std::vector<std::string> options;       ///< e.g. {"--threads", "2"}; none: as recorded
  std::vector<nlohmann::json> runs = {};  ///< RequestFigures::json(), one a turn
  std::string error = {};                 ///< why it could not run: it has no further turn

  std::string text() const;  ///< "--threads 2", "as recorded"
};

/// Runs the load once and returns its figures. Throws Error if it cannot run with these options.
using RunLoad = std::function<nlohmann::json(const std::vector<std::string>& options)>;

/// Runs all alternatives in turns, so that drift of the machine meets each of them alike. At least one turn; then more, up to `most_turns`,
/// while `seconds_left()` is more than a turn takes. Throws what the first alternative throws; the others are compared with it.
void take_turns(std::span<Alternative> alternatives, const RunLoad& run, int most_turns,
                const std::function<double()>& seconds_left);

/// The gain of `other` by a figure: less is better ("busy_s"), or with `more_is_better` more ("output_throughput").
MeasuredGain measured_gain(const Alternative& base, const Alternative& other, std::string_view figure,
                           bool more_is_better = false);

}  // namespace minfer
