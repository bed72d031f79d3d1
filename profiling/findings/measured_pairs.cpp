#include "profiling/findings/measured_pairs.h"

#include <algorithm>
#include <array>
#include <vector>

namespace minfer {
namespace {

constexpr MeasuredPair kPairs[] = {
#include "profiling/findings/measured_pairs.inc"
};

/// Measured gains over estimated ones, of the fitted pairs of a class but a tenth, the extreme ones.
GainRange ratios_of(bool on_gpu) {
  std::vector<double> ratios;
  for (const MeasuredPair& pair : kPairs) {
    if (pair.on_gpu == on_gpu && pair.is_fitted) ratios.push_back(pair.measured / pair.estimated);
  }
  std::ranges::sort(ratios);
  const size_t extreme = ratios.size() / 20;
  return {.from = ratios[extreme], .to = ratios[ratios.size() - 1 - extreme]};
}

}  // namespace

std::span<const MeasuredPair> measured_pairs() {
  return kPairs;
}

GainRange likely_gain(double estimated, bool on_gpu) {
  static const std::array kRatios{ratios_of(false), ratios_of(true)};
  const GainRange& ratios = kRatios[on_gpu ? 1 : 0];
  return {.from = std::clamp(estimated * ratios.from, 0.0, 1.0),
          .to = std::clamp(estimated * ratios.to, 0.0, 1.0)};
}

}  // namespace minfer
