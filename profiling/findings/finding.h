#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/record/kept_trial.h"

namespace minfer {

/// The level of a finding, from coarse to fine.
enum class FindingGroup : uint8_t { requests, system, kernels };
std::string_view name(FindingGroup group);

/// The quantity that a finding's gain is a share of.
enum class GainOf : uint8_t {
  wall_time,   ///< the same work would take less wall time
  throughput,  ///< the same time would do more work: time per token, if clients or memory allow more work
  latency,     ///< the times that the evidence names; the work itself stays
};
std::string_view name(GainOf of);

/// Gains below this are not worth acting on.
inline constexpr double kLeastGain = 0.01;

/// Something that costs time, and what to do about it.
struct Finding {
  std::string_view rule = {};  ///< Rule::name
  FindingGroup group = FindingGroup::system;
  std::string evidence = {};  ///< a sentence with the numbers
  double stake_us = 0.0;      ///< the part of the wall time in which it happened
  double stake = 0.0;         ///< the same as a share of the wall time
  double gain = 0.0;          ///< 0 to 1: the share of the quantity `of` that would be saved
  double gain_from = -1.0;    ///< the likely range's low end; -1 in a rule: find_all() sets both
  double gain_to = -1.0;      ///< and its high end
  GainOf of = GainOf::wall_time;
  bool estimated = true;   ///< the gain also rests on a model (roofline, a line through steps)
  bool has_option = true;  ///< false: no option mends it; it is a property of the build
  std::string advice = {};
  std::vector<std::string> trials = {};  ///< options that may mend it, each to be tried alone
  std::vector<KeptTrial> measured = {};  ///< the profile's measurements of these options for this rule

  /// The order of findings. Waiting that only moves elsewhere counts half, and at most as its share of the wall time, since the work
  /// stays. A finding without an option comes last, and does not make a run unhealthy.
  double weight() const {
    if (!has_option) return std::min(gain, kLeastGain);
    return of == GainOf::latency ? 0.5 * std::min(gain, stake) : gain;
  }
};

/// For sentences; 0 if `whole` is 0.
inline double percent_of(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

}  // namespace minfer
