#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/findings/kept_trial.h"

namespace minfer {

/// Where a finding lies, from coarse to fine.
enum class FindingGroup : uint8_t { requests, system, kernels };
std::string_view name(FindingGroup group);

/// What a finding's gain is a share of.
enum class GainOf : uint8_t {
  wall_time,  ///< the same work would take less of it
  throughput,  ///< as much time would do more work: time per token, where the clients, or memory, give more to do
  latency,  ///< of the times that the evidence names: the work itself stays
};
std::string_view name(GainOf of);

/// Gains below this are nothing to act on.
inline constexpr double kLeastGain = 0.01;

/// Something that costs time, and what to do about it.
struct Finding {
  std::string_view rule = {};  ///< Rule::name
  FindingGroup group = FindingGroup::system;
  std::string evidence = {};  ///< a sentence with the numbers
  double stake_us = 0.0;      ///< time in which it happened, of the wall time
  double stake = 0.0;         ///< the same as a share of the wall time
  double gain = 0.0;          ///< 0 to 1: share of what `of` says that would be saved
  double gain_from = -1.0;    ///< what is likely, at the least; -1 in a rule: find_all() sets both
  double gain_to = -1.0;      ///< and at the most
  GainOf of = GainOf::wall_time;
  bool estimated = false;  ///< the gain rests on a model of the work (roofline, a line through steps) too
  bool has_option = true;  ///< false: nothing that can be set mends it, which is a property of the build
  std::string advice = {};
  std::vector<std::string> trials = {};  ///< options that do it, each to be tried alone: trials_of()
  std::vector<KeptTrial> measured = {};  ///< of those, and of the rule, what the profile has

  /// What findings are ordered by. Waiting that only moves counts half, and as far as it fills the wall time: the work stays. What
  /// cannot be mended stands last, and makes no run unhealthy.
  double weight() const {
    if (!has_option) return std::min(gain, kLeastGain);
    return of == GainOf::latency ? 0.5 * std::min(gain, stake) : gain;
  }
};

/// For sentences: 0 of nothing.
inline double percent_of(double part, double whole) {
  return whole > 0.0 ? 100.0 * part / whole : 0.0;
}

}  // namespace minfer
