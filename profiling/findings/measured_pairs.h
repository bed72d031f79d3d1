#pragma once

#include <span>
#include <string_view>

namespace minfer {

/// What a rule promised of a fault that was planted, and what mending it gave.
struct MeasuredPair {
  std::string_view rule;
  bool on_gpu = false;
  bool is_fitted = true;   ///< the rule's range is likely_gain(); else the rule gives its own
  double estimated = 0.0;  ///< share, see Finding::gain
  double measured = 0.0;   ///< the same
};
/// From tests/benchmarks/results/findings-cpu-2026-11-28-fit.jsonl and findings-h200-2026-11-28-fit.jsonl, where the rule was
/// named first, then tried-pairs.jsonl, what scripts/keep_pairs.py took from profiles that were tried: it writes measured_pairs.inc too.
std::span<const MeasuredPair> measured_pairs();

/// Shares between which a gain lies.
struct GainRange {
  double from = 0.0;
  double to = 0.0;
};
/// The range of real gains behind an estimated one. The fitted pairs of the device's class give it, less a twentieth at either end.
GainRange likely_gain(double estimated, bool on_gpu);

}  // namespace minfer
