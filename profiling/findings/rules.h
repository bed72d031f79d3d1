#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/findings/evidence.h"
#include "profiling/findings/finding.h"

namespace minfer {

/// One thing that is looked for.
struct Rule {
  std::string_view name;
  FindingGroup group;
  std::string_view looks_at;  ///< what of the profile it rests on
  std::string_view gain;      ///< the formula of the gain
  /// Appends what it finds: evidence, stake_us, gain, advice. The rest is set by find().
  void (*look)(const Evidence& evidence, std::vector<Finding>& findings);
};

std::span<const Rule> request_rules();
std::span<const Rule> system_rules();
std::span<const Rule> host_rules();
std::span<const Rule> rank_rules();
std::span<const Rule> kernel_rules();

/// Gains below this are nothing to act on.
inline constexpr double kLeastGain = 0.01;
/// A run without a finding above this is healthy.
inline constexpr double kHealthyGain = 0.05;

/// What all rules find of at least kLeastGain, worst first.
std::vector<Finding> find_all(const Evidence& evidence);

/// What a run is bound by, in a sentence: memory or arithmetic only where most of the time is needed for them.
/// `findings`: of find_all().
std::string next_limit(const Evidence& evidence, std::span<const Finding> findings);

/// The change that leaves an op fewer bytes to read, as far as it has not been made: options, for a sentence.
std::string fewer_bytes(const Evidence& evidence, const OpEvidence& op);

}  // namespace minfer
