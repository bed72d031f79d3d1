#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiling/findings/evidence.h"
#include "profiling/findings/finding.h"

namespace minfer {

/// A rule that looks for one problem. profiling/README.md has the parts of the profile that it reads, and the formula of its gain.
struct Rule {
  std::string_view name;
  FindingGroup group;
  /// Appends its findings with evidence, stake_us, gain, advice and trials. find() sets the rest.
  void (*look)(const Evidence& evidence, std::vector<Finding>& findings);
};

/// The rules of each file; all_rules() has them all, in this order.
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

/// All findings with a gain of at least kLeastGain, worst first.
std::vector<Finding> find_all(const Evidence& evidence);

/// The limit of a run.
struct Limit {
  bool is_of_hardware = true;  ///< false: the hardware would need less than 60 % of the time
  std::string text = {};       ///< a sentence
};
/// `findings`: from find_all(). With unknown ceilings, nothing shows that the hardware is not the limit.
Limit next_limit(const Evidence& evidence, std::span<const Finding> findings);

/// Text that says that the power limit bounds the device's work, "at 690 of 700 W the clock is ..."; empty: it does not.
std::string bound_by_power(const Evidence& evidence);
/// The devices' samples as text, each behind "; ", for the end of a sentence; empty: there are none.
std::string devices_text(const Evidence& evidence);
/// The first device's clock, "1980 MHz and then 1755 MHz"; empty: the clock was not read.
std::string clock_with_time(const Evidence& evidence);
/// The time that steps with draft tokens lost against steps without; 0: they lost none, or there were no such steps.
double drafts_lost_us(const Evidence& evidence);

/// Trials (see Finding) of a numeric option at these multiples of its value in force, behind those of `others`.
std::vector<std::string> multiples(const Evidence& evidence, std::string_view option,
                                   std::initializer_list<double> factors,
                                   std::vector<std::string> others = {});
/// A type of half the size for keys and values; empty: there is nothing narrower.
std::string_view narrower_kv_type(const Evidence& evidence);
/// The trial of that type, behind those of `others`.
std::vector<std::string> narrower_kv_trial(const Evidence& evidence, std::vector<std::string> others = {});
/// True if a trial changes what the model computes, and so its answers.
bool changes_answers(std::string_view trial);
/// The threads of all ranks, as if the ranks shared this machine.
int64_t threads_of(const Evidence& evidence);

/// How to make an op's arithmetic faster, for the middle of a sentence.
std::string narrower_arithmetic(const Evidence& evidence, const OpEvidence& op);
/// How to make an op read fewer bytes, for the middle of a sentence: an option that is not set yet.
std::string fewer_bytes(const Evidence& evidence, const OpEvidence& op);

}  // namespace minfer
