#pragma once

#include <array>
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

/// By the file that they stand in; all_rules() has them all, in this order.
std::span<const Rule> request_rules();
std::span<const Rule> batch_rules();
std::span<const Rule> system_rules();
std::span<const Rule> host_rules();
std::span<const Rule> device_rules();
std::span<const Rule> rank_rules();
std::span<const Rule> kernel_rules();
std::array<std::span<const Rule>, 7> all_rules();

/// A run without a finding above this is healthy.
inline constexpr double kHealthyGain = 0.05;

/// What all rules find of at least kLeastGain, worst first.
std::vector<Finding> find_all(const Evidence& evidence);

/// What a run is bound by.
struct Limit {
  bool is_of_hardware = true;  ///< false: it would need less than 60 % of the time
  std::string text = {};       ///< a sentence
};
/// `findings`: of find_all(). Where the ceilings are not known nothing says that the hardware is not the limit.
Limit next_limit(const Evidence& evidence, std::span<const Finding> findings);

/// That the power limit is what work on the device is bound by, "at 690 of 700 W the clock is ..."; empty: it is not.
std::string bound_by_power(const Evidence& evidence);
/// What the devices said of themselves, each behind "; ", for the end of a sentence; empty: nothing.
std::string devices_text(const Evidence& evidence);
/// The first device's clock, "1980 MHz and then 1755 MHz"; empty: it was not read.
std::string clock_with_time(const Evidence& evidence);
/// Time that steps with draft tokens lost against steps without; 0: they lost none, or there were none.
double drafts_lost_us(const Evidence& evidence);

/// Rules of one file are one list; this one has a file of its own.
void f32_arithmetic(const Evidence& evidence, std::vector<Finding>& findings);
/// How to have an op's arithmetic take less, for the middle of a sentence.
std::string narrower_arithmetic(const Evidence& evidence, const OpEvidence& op);
/// How to leave an op fewer bytes to read: an option that is not set yet, for the middle of a sentence.
std::string fewer_bytes(const Evidence& evidence, const OpEvidence& op);

}  // namespace minfer
