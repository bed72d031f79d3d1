#pragma once

#include <span>
#include <string_view>

namespace minfer {

/// The gain that a rule estimated for a planted fault, and the gain of mending it.
struct MeasuredPair {
  std::string_view rule;
  bool on_gpu = false;
  bool is_fitted = true;   ///< the rule's range is likely_gain(); else the rule gives its own
  double estimated = 0.0;  ///< share, see Finding::gain
  double measured = 0.0;   ///< the same
};
/// From tests/benchmarks/results/findings-cpu-2026-11-28-fit.jsonl and findings-h200-2026-11-28-fit.jsonl, where the rule was named first,
/// then from tried-pairs.jsonl. scripts/profiles/keep_pairs.py took those pairs from tried profiles; it also writes measured_pairs.inc.
std::span<const MeasuredPair> measured_pairs();

/// A range of gains, as shares.
struct GainRange {
  double from = 0.0;
  double to = 0.0;
};
/// The range of real gains behind an estimated gain. It comes from the fitted pairs of the device's class, less a twentieth at either end.
GainRange likely_gain(double estimated, bool on_gpu);

}  // namespace minfer
