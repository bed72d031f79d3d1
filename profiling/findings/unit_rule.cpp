// The types that a device could multiply in, beside the types of its ops.
#include <algorithm>

#include <fmt/format.h>

#include "profiling/findings/rules.h"

namespace minfer {
namespace {

struct IdleUnit {
  std::string_view type = {};
  double gflops = 0.0;
};

/// The fastest unit that could do the op's products, if it is faster than the one that does. Weights of more than 12 bits would lose what
/// int8 cannot hold. Ceilings that were all measured while others had the cores say nothing of each other.
IdleUnit idle_unit(const Ceilings& ceilings, const OpEvidence& op) {
  if (op.units.vectors > 0.0 || ceilings.runs == 0) return {};
  const bool is_quantised = op.weight_bytes > 0.0 && op.weight_bytes < 1.5 * op.weights;
  IdleUnit unit{"bf16", ceilings.bf16_gflops};
  if (is_quantised && ceilings.int8_gflops > unit.gflops) unit = {"int8", ceilings.int8_gflops};
  return unit.gflops > ceilings.gflops ? unit : IdleUnit{};
}

std::string unit_text(const Ceilings& ceilings, const IdleUnit& unit) {
  return fmt::format("units for {}, {:.1f} times as fast as f32 (measured)", unit.type,
                     unit.gflops / ceilings.gflops);
}

}  // namespace

void f32_arithmetic(const Evidence& evidence, std::vector<Finding>& findings) {
  const Ceilings& ceilings = evidence.header().ceilings;
  double stake_us = 0.0, saved_us = 0.0;
  std::string longest, text;
  for (const OpEvidence& op : evidence.ops()) {
    const IdleUnit unit = idle_unit(ceilings, op);
    if (unit.gflops <= 0.0 || op.floor_us <= 0.0 || op.memory_bound()) continue;
    // At the share of the roof that it reaches now.
    const double floor_us = std::max(op.bytes / ceilings.read_gbps, op.flops / unit.gflops) * 1e-3;
    stake_us += op.us;
    saved_us += op.us * std::max(0.0, 1.0 - floor_us / op.floor_us);
    if (!text.empty()) continue;
    longest = op.op;
    text = unit_text(ceilings, unit);
  }
  if (stake_us <= 0.0) return;
  const double most = saved_us / evidence.steps().wall_us;
  findings.push_back(
      {.evidence = fmt::format("ops bound by arithmetic, {} the longest, take {:.0f} % of the time in f32, "
                               "while the cores have {}",
                               longest, 100.0 * stake_us / evidence.steps().wall_us, text),
       .stake_us = stake_us,
       .gain = 0.5 * most,
       .gain_from = 0.0,
       .gain_to = most,
       .estimated = true,
       .has_option = false,
       .advice = "nothing to set: this build's CPU products use f32, whatever units the cores have"});
}

std::string narrower_arithmetic(const Evidence& evidence, const OpEvidence& op) {
  const Ceilings& ceilings = evidence.header().ceilings;
  const IdleUnit unit = idle_unit(ceilings, op);
  if (unit.gflops > 0.0)
    return fmt::format("fewer tokens to compute; the cores have {}, which no kernel of this build uses",
                       unit_text(ceilings, unit));
  if (op.units.fp8 <= 0.0 && op.units.vectors <= 0.0 && op.kind != OpKind::attention &&
      ceilings.fp8_gflops > ceilings.gflops && evidence.text("quantization") == "none")
    return fmt::format(
        "--quantization fp8, in which the tensor cores do {:.1f} times as much, or fewer tokens to compute",
        ceilings.fp8_gflops / ceilings.gflops);
  return "fewer tokens to compute";
}

}  // namespace minfer
