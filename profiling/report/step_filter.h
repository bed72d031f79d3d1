#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "profiling/report/summary.h"

namespace minfer {

/// Selects steps of a profile.
struct StepFilter {
  std::optional<StepPhase> phase = std::nullopt;
  std::optional<std::pair<int64_t, int64_t>> steps = std::nullopt;  ///< first and last, both included
  std::string request = {};  ///< a request that they served; empty: any

  bool is_all() const { return !phase && !steps && request.empty(); }
  bool takes(const StepSummary& step) const;
  /// E.g. "decode steps from 10 to 20 of request r-1"; for every step, "steps".
  std::string text() const;
};

}  // namespace minfer
