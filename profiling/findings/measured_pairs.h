#pragma once

#include <span>
#include <string_view>

namespace minfer {

/// What a rule promised of a fault that was planted, and what mending it gave.
struct MeasuredPair {
  std::string_view rule;
  bool on_gpu = false;
  double estimated = 0.0;  ///< share, see Finding::gain
  double measured = 0.0;   ///< the same
};
/// From tests/benchmarks/results/findings-cpu-2026-11-22.jsonl and findings-h200-2026-11-22.jsonl.
std::span<const MeasuredPair> measured_pairs();

/// Shares between which a gain lies.
struct GainRange {
  double from = 0.0;
  double to = 0.0;
};
/// What the pairs of a device's class say of a gain that is estimated: without a tenth of them at either end.
GainRange likely_gain(double estimated, bool on_gpu);

}  // namespace minfer
