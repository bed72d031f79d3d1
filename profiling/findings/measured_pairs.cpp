#include "profiling/findings/measured_pairs.h"

#include <algorithm>
#include <array>
#include <vector>

namespace minfer {
namespace {

constexpr MeasuredPair kPairs[] = {
    {"too little load", false, true, 0.757, 0.699},
    {"tiny chunks", false, true, 0.585, 0.354},
    {"too few threads", false, false, 0.348, 0.339},
    {"preemption thrash", false, false, 0.193, 0.25},
    {"prefix not cached", false, true, 0.715, 0.706},
    {"prefill starves decode", false, true, 0.996, 0.974},
    {"clients too slow", false, true, 0.721, 0.649},
    {"cores taken", false, false, 0.842, 0.743},
    {"cores taken", false, false, 0.66, 0.595},
    {"CPU quota", false, false, 0.789, 0.756},
    {"more threads than cores", false, false, 0.536, -0.003},
    {"batch too small", false, true, 0.406, 0.3},
    {"KV cache too small", false, false, 0.136, 0.091},
    {"prefix not cached", false, true, 0.767, 0.764},
    {"drafts that lose", false, true, 0.744, 0.723},
    {"uneven batch", false, false, 0.108, 0.201},
    {"overload", false, false, 0.712, 0.978},
    {"graph misses", true, true, 0.081, 0.075},
    {"graph misses", true, true, 0.327, 0.463},
    {"f32 lanes", true, true, 0.927, 0.889},
    {"attention split", true, true, 0.331, 0.349},
    {"small grid", true, true, 0.616, 0.571},
    {"synchronous copy", true, false, 0.281, 0.24},
    {"another process", true, false, 0.509, 0.506},
    {"another process", true, false, 0.561, 0.557},
    {"another process", true, false, 0.492, 0.552},
    {"drafts that lose", true, false, 0.4, 0.2},
    {"drafts that lose", true, false, 0.379, 0.143},
    {"drafts that lose", true, false, 0.349, 0.44},
    {"uneven batch", true, false, 0.149, 0.204},
    {"overload", true, false, 0.962, 0.991},
    {"KV cache too small", true, false, 0.077, 0.18},
    {"tiny chunks", true, true, 0.365, 0.413},
    {"decode starves prefill", true, true, 0.763, 0.784},
    {"too little load", true, true, 0.81, 0.864},
    {"preemption thrash", true, false, 0.201, 0.458},
    {"batch too small", true, true, 0.401, 0.453},
    {"tiny chunks", true, true, 0.56, 0.666},
    {"prefix not cached", true, true, 0.744, 0.655},
    {"prefill starves decode", true, true, 0.935, 0.915},
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
