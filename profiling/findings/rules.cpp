#include "profiling/findings/rules.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "profiling/findings/measured_pairs.h"

namespace minfer {
namespace {

/// From here on the hardware is what a run is bound by.
constexpr double kBusy = 0.6;

/// Shares of the wall time that memory and arithmetic would need at full speed.
struct Utilisation {
  double memory = 0.0;
  double arithmetic = 0.0;
  double either = 0.0;  ///< each op by the one that it needs longer
};

Utilisation utilisation_of(const Evidence& evidence) {
  Utilisation used;
  const Ceilings& ceilings = evidence.header().ceilings;
  const double wall_us = evidence.steps.wall_us;
  if (!ceilings.known() || wall_us <= 0.0) return used;
  for (const OpEvidence& op : evidence.ops()) {
    used.memory += op.bytes / ceilings.read_gbps * 1e-3 / wall_us;
    used.arithmetic += op.flops / ceilings.gflops_of(op.units) * 1e-3 / wall_us;
    used.either += std::min(op.us, op.floor_us) / wall_us;
  }
  used.memory = std::min(used.memory, 1.0);
  used.arithmetic = std::min(used.arithmetic, 1.0);
  return used;
}

std::string used_text(const Utilisation& used) {
  return fmt::format("memory bandwidth {:.0f} %, arithmetic {:.0f} % used, estimated", 100.0 * used.memory,
                     100.0 * used.arithmetic);
}

Limit bound_by_hardware(const Evidence& evidence, const OpEvidence& longest, const Utilisation& used) {
  const bool memory = used.memory >= used.arithmetic;
  return {.text = fmt::format("Bound by {} ({}): {}.", memory ? "memory bandwidth" : "arithmetic",
                              used_text(used),
                              memory ? "faster steps need " + fewer_bytes(evidence, longest) +
                                           ", more tokens a second a larger batch"
                                     : "more speed needs " + narrower_arithmetic(evidence, longest))};
}

Limit bound_by_other(const OpEvidence& longest, double share, const Utilisation& used,
                     std::span<const Finding> findings) {
  std::string reason;
  if (is_between_ranks(longest.kind)) {
    reason = fmt::format("{} takes {:.0f} % of the ops' time, in which ranks exchange data and wait",
                         longest.op, 100.0 * share);
  } else if (!findings.empty() && findings.front().weight() > kHealthyGain) {
    reason = "see the first finding";
  } else {
    reason = fmt::format("the longest op, {}, takes {:.0f} % of the ops' time at {:.0f} % of its roof",
                         longest.op, 100.0 * share, 100.0 * longest.roofline());
  }
  return {.is_of_hardware = false,
          .text = fmt::format("Not bound by the hardware ({}): {}.", used_text(used), reason)};
}

}  // namespace

std::string_view name(FindingGroup group) {
  static constexpr std::array<std::string_view, 3> kNames{"requests", "system", "kernels"};
  return kNames[static_cast<size_t>(group)];
}

std::string_view name(GainOf of) {
  static constexpr std::array<std::string_view, 3> kNames{"wall time", "throughput", "latency"};
  return kNames[static_cast<size_t>(of)];
}

std::array<std::span<const Rule>, 7> all_rules() {
  return {request_rules(), batch_rules(), system_rules(), host_rules(),
          device_rules(),  rank_rules(),  kernel_rules()};
}

std::vector<Finding> find_all(const Evidence& evidence) {
  std::vector<Finding> findings;
  const double wall_us = evidence.steps.wall_us;
  if (wall_us <= 0.0) return findings;
  for (const std::span<const Rule> rules : all_rules()) {
    for (const Rule& rule : rules) {
      const size_t first = findings.size();
      rule.look(evidence, findings);
      for (Finding& finding : std::span(findings).subspan(first)) {
        finding.rule = rule.name;
        finding.group = rule.group;
        finding.stake = std::clamp(finding.stake_us / wall_us, 0.0, 1.0);
        finding.gain = std::clamp(finding.gain, 0.0, 1.0);
        if (finding.gain_from >= 0.0) continue;
        const GainRange likely = likely_gain(finding.gain, evidence.on_device);
        finding.gain_from = likely.from;
        finding.gain_to = likely.to;
      }
    }
  }
  std::erase_if(findings, [](const Finding& finding) { return finding.weight() < kLeastGain; });
  std::ranges::stable_sort(findings, std::ranges::greater{}, &Finding::weight);
  return findings;
}

std::vector<std::string> multiples(const Evidence& evidence, std::string_view option,
                                   std::initializer_list<double> factors, std::vector<std::string> others) {
  std::string name(option);
  std::ranges::replace(name, '-', '_');
  for (const double factor : factors) {
    const double value = std::round(factor * static_cast<double>(evidence.option(name)));
    if (value >= 1.0) others.push_back(fmt::format("--{} {:.0f}", option, value));
  }
  return others;
}

std::string_view narrower_kv_type(const Evidence& evidence) {
  const std::string_view type = evidence.text("kv_cache_dtype");
  if (!evidence.on_device) return type == "f32" ? "f16" : "";
  return type == "bf16" || type == "f16" ? "fp8" : "";
}

std::vector<std::string> narrower_kv_trial(const Evidence& evidence, std::vector<std::string> others) {
  if (const std::string_view type = narrower_kv_type(evidence); !type.empty())
    others.push_back(fmt::format("--kv-cache-dtype {}", type));
  return others;
}

bool changes_answers(std::string_view trial) {
  return trial.starts_with("--kv-cache-dtype") || trial.starts_with("--quantization");
}

int64_t threads_of(const Evidence& evidence) {
  return evidence.header().threads * evidence.option("tensor_parallel_size", 1);
}

Limit next_limit(const Evidence& evidence, std::span<const Finding> findings) {
  const std::vector<OpEvidence> ops = evidence.ops();
  const double ops_us = evidence.steps.ops_us();
  if (ops.empty() || ops_us <= 0.0) return {.text = "No op was recorded."};
  const OpEvidence& longest = ops.front();
  const double share = longest.us / ops_us;
  if (!evidence.header().ceilings.known()) {
    return {.text = fmt::format("{} takes {:.0f} % of the ops' time. Its limit is not known: the ceilings "
                                "were not measured.",
                                longest.op, 100.0 * share)};
  }
  const Utilisation used = utilisation_of(evidence);
  if (const std::string power = bound_by_power(evidence); !power.empty()) {
    return {.text =
                fmt::format("Bound by power: {} ({}): more speed needs fewer joules a token{}; a smaller "
                            "batch needs more of them.",
                            power, used_text(used), longest.units.fp8 > 0.0 ? "" : ", as with FP8 weights")};
  }
  return used.either >= kBusy ? bound_by_hardware(evidence, longest, used)
                              : bound_by_other(longest, share, used, findings);
}

}  // namespace minfer
