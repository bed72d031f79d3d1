#include "profiling/findings/measured_pairs.h"

#include <algorithm>
#include <array>
#include <vector>

namespace minfer {
namespace {

constexpr MeasuredPair kPairs[] = {
    {"too little load", false, 0.649, 0.586},
    {"tiny chunks", false, 0.502, 0.454},
    {"too few threads", false, 0.426, 0.42},
    {"preemption thrash", false, 0.196, 0.146},
    {"prefix not cached", false, 0.712, 0.703},
    {"prefill starves decode", false, 0.997, 0.986},
    {"clients too slow", false, 0.784, 0.728},
    {"graph misses", true, 0.093, 0.08},
    {"graph misses", true, 0.283, 0.332},
    {"f32 lanes", true, 0.59, 0.864},
    {"slower than bf16", true, 0.341, 0.348},
    {"attention split", true, 0.188, 0.319},
    {"small grid", true, 0.309, 0.396},
    {"synchronous copy", true, 0.371, 0.243},
    {"another process", true, 0.59, 0.54},
    {"too little load", true, 0.761, 0.852},
    {"preemption thrash", true, 0.215, 0.469},
    {"batch too small", true, 0.397, 0.537},
    {"tiny chunks", true, 0.576, 0.746},
    {"prefix not cached", true, 0.742, 0.657},
    {"prefill starves decode", true, 0.936, 0.913},
};

/// Measured gains over estimated ones, of all pairs of a class but the extreme ones.
GainRange ratios_of(bool on_gpu) {
  std::vector<double> ratios;
  for (const MeasuredPair& pair : kPairs) {
    if (pair.on_gpu == on_gpu) ratios.push_back(pair.measured / pair.estimated);
  }
  std::ranges::sort(ratios);
  const size_t extreme = ratios.size() / 10;
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
