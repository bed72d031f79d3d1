#include "profiling/findings/rules.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace minfer {
namespace {

std::string limit_of(const OpEvidence& op, double share) {
  if (is_between_ranks(op.kind)) {
    return fmt::format(
        "{} takes {:.0f} % of the ops' time: the next limit is what ranks exchange, and their waiting for "
        "each "
        "other",
        op.op, 100.0 * share);
  }
  if (op.roofline() > 1.0) {
    return fmt::format(
        "{} takes {:.0f} % of the ops' time and is faster than memory ({:.0f} % of the roofline): it reads "
        "from the cache",
        op.op, 100.0 * share, 100.0 * op.roofline());
  }
  const bool memory = op.memory_bound();
  return fmt::format(
      "{} takes {:.0f} % of the ops' time at {:.0f} % of the roofline (estimated): the next limit is {}; {}",
      op.op, 100.0 * share, 100.0 * op.roofline(), memory ? "memory bandwidth" : "arithmetic",
      memory ? "more speed a step needs quantised weights (or --kv-cache-dtype fp8), more a second a larger "
               "batch"
             : "more speed needs a narrower type or fewer tokens to compute");
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

std::vector<Finding> find_all(const Evidence& evidence) {
  std::vector<Finding> findings;
  const double wall_us = evidence.steps().wall_us;
  if (wall_us <= 0.0) return findings;
  for (const std::span<const Rule> rules : {request_rules(), system_rules(), rank_rules(), kernel_rules()}) {
    for (const Rule& rule : rules) {
      const size_t first = findings.size();
      rule.look(evidence, findings);
      for (Finding& finding : std::span(findings).subspan(first)) {
        finding.rule = rule.name;
        finding.group = rule.group;
        finding.stake = std::clamp(finding.stake_us / wall_us, 0.0, 1.0);
        finding.gain = std::clamp(finding.gain, 0.0, 1.0);
      }
    }
  }
  std::erase_if(findings, [](const Finding& finding) { return finding.weight() < kLeastGain; });
  std::ranges::stable_sort(findings, std::ranges::greater{}, &Finding::weight);
  return findings;
}

std::string next_limit(const Evidence& evidence) {
  const std::vector<OpEvidence> ops = evidence.ops();
  const double ops_us = evidence.steps().ops_us();
  if (ops.empty() || ops_us <= 0.0) return "No op was recorded.";
  const OpEvidence& op = ops.front();
  if (op.floor_us <= 0.0 && !is_between_ranks(op.kind)) {
    return fmt::format(
        "{} takes {:.0f} % of the ops' time; how near to its limit that is is not known without measured "
        "ceilings.",
        op.op, 100.0 * op.us / ops_us);
  }
  return limit_of(op, op.us / ops_us) + ".";
}

}  // namespace minfer
