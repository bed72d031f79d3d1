// Rules about single ops against the roofline, which is an estimate: bytes and operations are counted, not measured.
#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "profiling/findings/rules.h"

namespace minfer {
namespace {

// Thresholds as in Nsight Compute's public rules.
constexpr double kNearLimit = 0.8;
constexpr double kLatencyBound = 0.6;
constexpr double kTailEffect = 0.2;
constexpr double kLowOccupancy = 0.25;
constexpr double kShortestKernelUs = 2.0;  // a call of an op cannot take less on a GPU
constexpr double kRereads = 1.2;           // bytes read from memory over those counted
constexpr double kLowHits = 0.3;           // of the L2 cache, where it could hold what is read again
// Of what lies above the roofline, where neither roof tells why. A CPU's cores and caches are shared with whatever else runs, but its
// roofs were measured alone.
constexpr double kReachable = 0.25, kReachableOnCpu = 0.1;
constexpr double kLeastShare = 0.01;  // of the wall time: ops below it are left out

std::string_view phase_of(const OpEvidence& op) {
  return name(op.phase);
}

bool is_product(OpKind kind) {
  return kind == OpKind::linear || kind == OpKind::gate_up_swiglu || kind == OpKind::moe_gate_up_swiglu ||
         kind == OpKind::moe_down;
}

/// The launch that took most of the op's time; null: not known.
const KernelLaunch* launch_of(const Evidence& evidence, const OpEvidence& op) {
  const auto most =
      std::ranges::max_element(op.launches, {}, [](const auto& launch) { return launch.second; });
  return most == op.launches.end() ? nullptr : &evidence.launches()[static_cast<size_t>(most->first)];
}

double wasted_tail(const KernelLaunch& launch) {
  return launch.waves > 1.0 ? 1.0 - launch.waves / std::ceil(launch.waves - 1e-6) : 0.0;
}

/// Why an op is slow: each has one reason.
enum class Cause : uint8_t {
  none,
  unknown_roof,
  cache,
  f32_lanes,
  dequantised,
  attention_split,
  small_grid,
  tail_wave,
  occupancy,
  latency,
  memory,
  compute,
};

Cause cause_of(const Evidence& evidence, const OpEvidence& op) {
  const double roofline = op.roofline();
  const KernelLaunch* const launch = launch_of(evidence, op);
  if (op.floor_us <= 0.0) return Cause::unknown_roof;
  if (evidence.on_device() && is_product(op.kind) && evidence.header().activation_dtype == DType::f32)
    return Cause::f32_lanes;
  if (op.dequantised_us > 0.5 * op.us) return Cause::dequantised;
  if (roofline > 1.05) return Cause::cache;
  if (roofline >= kNearLimit) return Cause::none;
  if (launch != nullptr && wasted_tail(*launch) >= kTailEffect) return Cause::tail_wave;
  if (launch != nullptr && roofline < kLatencyBound && launch->waves > 0.0 && launch->waves < 1.0)
    return op.kind == OpKind::attention ? Cause::attention_split : Cause::small_grid;
  if (roofline >= kLatencyBound) return op.memory_bound() ? Cause::memory : Cause::compute;
  if (launch != nullptr && launch->occupancy > 0.0 && launch->occupancy < kLowOccupancy)
    return Cause::occupancy;
  return Cause::latency;
}

/// Time that the op would not take near its roof; a kernel takes some whatever it does.
double above_roof_us(const Evidence& evidence, const OpEvidence& op) {
  const double shortest_us = evidence.on_device() ? kShortestKernelUs * static_cast<double>(op.calls) : 0.0;
  return std::max(0.0, op.us - std::max(op.floor_us / kNearLimit, shortest_us));
}

std::string roof_text(const OpEvidence& op) {
  return fmt::format("{} ({}) runs at {:.0f} % of the roofline ({}, estimated), {:.1f} us a call", op.op,
                     phase_of(op), 100.0 * op.roofline(), op.memory_bound() ? "memory" : "arithmetic",
                     op.call_us());
}

/// Adds what is found of each op of this cause.
template <class Describe>
void for_ops(const Evidence& evidence, Cause cause, std::vector<Finding>& findings, Describe describe) {
  for (const OpEvidence& op : evidence.ops()) {
    if (op.us < kLeastShare * evidence.steps().wall_us || cause_of(evidence, op) != cause) continue;
    Finding finding{.evidence = roof_text(op), .stake_us = op.us, .estimated = true};
    double saved_us = above_roof_us(evidence, op);
    describe(op, finding, saved_us);
    finding.gain = saved_us / evidence.steps().wall_us;
    findings.push_back(std::move(finding));
  }
}

void f32_lanes(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::f32_lanes, findings,
          [&](const OpEvidence& op, Finding& finding, double& saved_us) {
            saved_us = 0.5 * op.us;  // half the bytes, or far more arithmetic
            finding.evidence = fmt::format(
                "{} ({}) multiplies in f32, {:.1f} us a call: no tensor core does, and activations and "
                "weights take "
                "twice the bytes",
                op.op, phase_of(op), op.call_us());
            finding.advice = "--dtype bf16, or a model file in bf16";
          });
}

void dequantised(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(
      evidence, Cause::dequantised, findings, [&](const OpEvidence& op, Finding& finding, double& saved_us) {
        // bf16 weights would be read once; these are read, written and read again.
        saved_us = std::max(saved_us, 0.3 * op.us);
        finding.evidence +=
            "; its quantised weights are written out in bf16 for each step, which costs more than they save "
            "at this batch";
        finding.advice = "a bf16 file for batches of this size; or fewer sequences a step: --max-num-seqs";
      });
}

void attention_split(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::attention_split, findings,
          [&](const OpEvidence& op, Finding& finding, double& saved_us) {
            const KernelLaunch& launch = *launch_of(evidence, op);
            saved_us = std::min(saved_us, op.us * (1.0 - launch.waves));
            finding.evidence +=
                fmt::format("; {} blocks are {:.2f} of a wave: keys are split among too few of them",
                            launch.num_blocks(), launch.waves);
            finding.advice =
                "more sequences a step; the op's split of keys (attention plan) is to be looked at for this "
                "context";
          });
}

void small_grid(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::small_grid, findings,
          [&](const OpEvidence& op, Finding& finding, double& saved_us) {
            const KernelLaunch& launch = *launch_of(evidence, op);
            saved_us = std::min(saved_us, op.us * (1.0 - launch.waves));
            finding.evidence += fmt::format("; its kernel's {} blocks are {:.2f} of a wave ({})",
                                            launch.num_blocks(), launch.waves, launch.path);
            finding.advice =
                "more tokens a step (--max-num-seqs, more requests at once); a smaller tile, split-K, or "
                "fusing it with its neighbour";
          });
}

void tail_wave(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(
      evidence, Cause::tail_wave, findings, [&](const OpEvidence& op, Finding& finding, double& saved_us) {
        const KernelLaunch& launch = *launch_of(evidence, op);
        saved_us = std::min(saved_us, op.us * wasted_tail(launch));
        finding.evidence += fmt::format(
            "; its kernel's {} blocks are {:.2f} waves: {:.0f} % of the last one's places stay empty ({})",
            launch.num_blocks(), launch.waves, 100.0 * (std::ceil(launch.waves) - launch.waves), launch.path);
        finding.advice =
            "another tile for this shape; batches that fill whole waves (--max-num-seqs, "
            "--max-num-batched-tokens)";
      });
}

void occupancy(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::occupancy, findings,
          [&](const OpEvidence& op, Finding& finding, double& saved_us) {
            const KernelLaunch& launch = *launch_of(evidence, op);
            saved_us *= 0.5;  // more warps hide some of what they wait for
            finding.evidence += fmt::format(
                "; {:.0f} % of the warps that a multiprocessor holds fit, limited by {} ({} registers, {} "
                "KiB shared)",
                100.0 * launch.occupancy, name(launch.limiter), launch.registers,
                (launch.static_shared_bytes + launch.dynamic_shared_bytes) >> 10);
            finding.advice = fmt::format("a kernel that needs less of it: {}", name(launch.limiter));
          });
}

void latency_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::latency, findings, [&](const OpEvidence&, Finding& finding, double& saved_us) {
    saved_us *= evidence.on_device() ? kReachable : kReachableOnCpu;
    finding.evidence += "; neither memory nor arithmetic is busy";
    finding.advice = evidence.on_device()
                         ? "more bytes in flight: longer loads, deeper pipelines; fuse it with its neighbour"
                         : "more tokens a step; wider vectors, longer loops between barriers";
  });
}

void memory_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::memory, findings, [&](const OpEvidence&, Finding& finding, double& saved_us) {
    saved_us *= 0.5;
    finding.advice =
        "fewer bytes: quantised weights, --kv-cache-dtype fp8 for attention; a larger batch shares the "
        "weights";
  });
}

void compute_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::compute, findings, [&](const OpEvidence&, Finding& finding, double& saved_us) {
    saved_us *= 0.5;
    finding.advice =
        "fewer operations: shorter prompts, --enable-prefix-caching; another tile for this shape";
  });
}

/// What counters say beside the counted bytes.
void rereads(const Evidence& evidence, std::vector<Finding>& findings) {
  for (const OpEvidence& op : evidence.ops()) {
    const auto found = evidence.reads().find(op.op);
    if (found == evidence.reads().end() || found->second.counted_bytes <= 0.0 || !op.memory_bound()) continue;
    const double ratio = found->second.measured_bytes / found->second.counted_bytes;
    if (ratio < kRereads || op.us < kLeastShare * evidence.steps().wall_us) continue;
    findings.push_back(
        {.evidence =
             fmt::format("{} ({}) read {:.2f} times the bytes that it must (measured): it reads some again",
                         op.op, phase_of(op), ratio),
         .stake_us = op.us,
         .gain =
             op.us / evidence.steps().wall_us * (1.0 - 1.0 / ratio) * std::min(1.0, op.roofline() * ratio),
         .estimated = true,
         .advice = "order its blocks so that those that share data run together, or tiles of another shape"});
  }
}

void low_l2_hits(const Evidence& evidence, std::vector<Finding>& findings) {
  for (const OpEvidence& op : evidence.ops()) {
    const auto found = evidence.reads().find(op.op);
    if (found == evidence.reads().end() || found->second.us <= 0.0 || found->second.l2_hit <= 0.0) continue;
    const double hit = found->second.l2_hit / found->second.us;
    if (hit >= kLowHits || op.memory_bound() || op.us < kLeastShare * evidence.steps().wall_us) continue;
    findings.push_back(
        {.evidence = fmt::format(
             "{} ({}) is bound by arithmetic, yet only {:.0f} % of what it asks the L2 cache for is there "
             "(measured)",
             op.op, phase_of(op), 100.0 * hit),
         .stake_us = op.us,
         .gain = above_roof_us(evidence, op) / evidence.steps().wall_us * (1.0 - hit),
         .estimated = true,
         .advice = "order its blocks so that those that share data run together"});
  }
}

constexpr std::array kKernelRules{
    Rule{"f32 lanes", FindingGroup::kernels, "products of a device whose activations are f32",
         "half of their share", f32_lanes},
    Rule{"dequantised", FindingGroup::kernels, "products that launched dequantise_rows",
         "at least 0.3 of their share", dequantised},
    Rule{"attention split", FindingGroup::kernels, "attention under 60 % of the roofline and under one wave",
         "share x (1 - waves), to 80 % of the roofline at the most", attention_split},
    Rule{"small grid", FindingGroup::kernels, "ops under 60 % of the roofline whose kernel is under one wave",
         "share x (1 - waves), to 80 % of the roofline at the most", small_grid},
    Rule{"tail wave", FindingGroup::kernels, "kernels of which 20 % of all waves' places stay empty",
         "share x empty places, to 80 % of the roofline at the most", tail_wave},
    Rule{"occupancy", FindingGroup::kernels, "ops under 60 %, of which fewer than 25 % of the warps fit",
         "half of what lies above 80 % of the roofline", occupancy},
    Rule{"latency-bound", FindingGroup::kernels, "other ops under 60 % of the roofline",
         "a quarter (on a CPU a tenth) of what lies above 80 % of the roofline", latency_bound},
    Rule{"memory-bound", FindingGroup::kernels, "ops at 60 to 80 % of the memory roof",
         "half of what lies above 80 % of the roofline", memory_bound},
    Rule{"compute-bound", FindingGroup::kernels, "ops at 60 to 80 % of the arithmetic roof",
         "half of what lies above 80 % of the roofline", compute_bound},
    Rule{"re-reads", FindingGroup::kernels, "bytes read by the counters, 1.2 times the counted ones",
         "share x (1 - counted / measured)", rereads},
    Rule{"L2 misses", FindingGroup::kernels, "hits of the counters under 30 % in ops bound by arithmetic",
         "time above 80 % of the roofline x misses", low_l2_hits},
};

}  // namespace

std::span<const Rule> kernel_rules() {
  return kKernelRules;
}

}  // namespace minfer
