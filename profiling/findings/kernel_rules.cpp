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
constexpr double kHalfWave = 0.5;        // a smaller grid explains a slow product, for any weights
constexpr double kTensorCores = 8.0;     // times as fast in bf16 as lanes in f32, at the least, since Ampere
constexpr double kSlowerThanBf16 = 1.5;  // over the estimate in bf16, which steps reach 2/3 to 3/4 of
constexpr double kShortestKernelUs = 2.0;  // a call of an op cannot take less on a GPU
// The share of an op's time saved by twice the warps: 0 to 4 % for products of quantised weights, which rarely wait
// (kernels/cuda/product/README.md, "two" and "four warpgroups").
constexpr double kMoreWarps = 0.04;
constexpr double kRereads = 1.2;  // bytes read from memory over those counted
constexpr double kLowHits = 0.3;  // of the L2 cache, where it could hold what is read again
// The share of the time above the roofline, if neither roof explains it. A CPU's cores and caches are shared with other programs, but its
// roofs were measured alone.
constexpr double kReachable = 0.25, kReachableOnCpu = 0.1;
constexpr double kLeastShare = 0.01;  // of the wall time: ops below it are left out

/// The launch that took most of the op's time; null: not known.
const KernelLaunch* launch_of(const Evidence& evidence, const OpEvidence& op) {
  const auto most =
      std::ranges::max_element(op.launches, {}, [](const auto& launch) { return launch.second; });
  return most == op.launches.end() ? nullptr : &evidence.launches[static_cast<size_t>(most->first)];
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
  slower_than_bf16,
  attention_split,
  small_grid,
  tail_wave,
  occupancy,
  latency,
  memory,
  compute,
};

/// The time of products of bf16 activations that read `bytes` in all. cuBLASLt's products, of 8B at batch 64 and 1B at batch 16 on an
/// H200, are within 10 % of it. It uses the roof of products of activations, not the op's own. `times`: arithmetic against that roof.
double estimated_us(const Evidence& evidence, const OpEvidence& op, double bytes, double times) {
  constexpr double kBestProduct = 0.9, kProductStartUs = 4.0;
  const Ceilings& ceilings = evidence.header().ceilings;
  if (!ceilings.known()) return op.us;
  const double roof_us = std::max(bytes / ceilings.read_gbps, op.flops / ceilings.gflops / times) * 1e-3;
  return roof_us / kBestProduct + kProductStartUs * static_cast<double>(op.calls);
}

/// Products of quantised weights that bf16 weights would do sooner: dequantised first, or by kernels far from their roof.
bool has_quantised_weights(const OpEvidence& op) {
  constexpr double kBytesOfQuantised = 1.5;  // a weight
  return op.weight_bytes > 0.0 && op.weight_bytes < kBytesOfQuantised * op.weights;
}

double estimated_bf16_us(const Evidence& evidence, const OpEvidence& op) {
  return estimated_us(evidence, op, 2.0 * op.weights * static_cast<double>(op.calls), 1.0);
}

bool is_slower_than_bf16(const Evidence& evidence, const OpEvidence& op) {
  return has_quantised_weights(op) && (op.kind == OpKind::linear || op.kind == OpKind::gate_up_swiglu) &&
         op.us > kSlowerThanBf16 * estimated_bf16_us(evidence, op);
}

Cause cause_of(const Evidence& evidence, const OpEvidence& op) {
  const double roofline = op.roofline();
  const KernelLaunch* const launch = launch_of(evidence, op);
  if (is_between_ranks(op.kind))
    return Cause::none;  // waiting is in their time: ranks have rules of their own
  if (op.floor_us <= 0.0) return Cause::unknown_roof;
  if (evidence.on_device && (is_product(op.kind) || op.kind == OpKind::attention) &&
      evidence.header().activation_dtype == DType::f32)
    return Cause::f32_lanes;
  const bool fills_half = launch == nullptr || launch->waves <= 0.0 || launch->waves >= kHalfWave;
  if (evidence.on_device && fills_half && is_slower_than_bf16(evidence, op)) return Cause::slower_than_bf16;
  if (roofline > 1.05) return Cause::cache;
  if (roofline >= kNearLimit) return Cause::none;
  if (launch != nullptr && wasted_tail(*launch) >= kTailEffect) return Cause::tail_wave;
  if (roofline < kLatencyBound && !fills_half)
    return op.kind == OpKind::attention ? Cause::attention_split : Cause::small_grid;
  if (roofline >= kLatencyBound) return op.memory_bound() ? Cause::memory : Cause::compute;
  if (launch != nullptr && launch->occupancy > 0.0 && launch->occupancy < kLowOccupancy)
    return Cause::occupancy;
  return Cause::latency;
}

/// Time that the op would not take near its roof; a kernel takes some whatever it does.
double above_roof_us(const Evidence& evidence, const OpEvidence& op) {
  const double shortest_us = evidence.on_device ? kShortestKernelUs * static_cast<double>(op.calls) : 0.0;
  return std::max(0.0, op.us - std::max(op.floor_us / kNearLimit, shortest_us));
}

/// Adds what is found of each op of this cause.
template <class Describe>
void for_ops(const Evidence& evidence, Cause cause, std::vector<Finding>& findings, Describe describe) {
  for (const OpEvidence& op : evidence.ops()) {
    if (op.us < kLeastShare * evidence.steps.wall_us || cause_of(evidence, op) != cause) continue;
    Finding finding{
        .evidence = fmt::format("{} ({}) runs at {:.0f} % of the roofline ({}, estimated), {:.1f} us a call",
                                op.op, name(op.phase), 100.0 * op.roofline(),
                                op.memory_bound() ? "memory" : "arithmetic", op.call_us()),
        .stake_us = op.us};
    double saved_us = above_roof_us(evidence, op);
    describe(op, finding, saved_us);
    finding.gain = saved_us / evidence.steps.wall_us;
    findings.push_back(std::move(finding));
  }
}

/// One finding for all ops of a cause that one change mends. `estimate`: what an op would take then.
template <class Estimate>
void for_all_ops(const Evidence& evidence, Cause cause, std::string_view what, std::string_view advice,
                 std::vector<Finding>& findings, Estimate estimate) {
  Finding finding{.advice = std::string(advice)};
  double saved_us = 0.0;
  std::string worst;
  int64_t count = 0;
  for (const OpEvidence& op : evidence.ops()) {
    if (cause_of(evidence, op) != cause) continue;
    if (count++ == 0) worst = fmt::format("{} ({}), {:.1f} us a call", op.op, name(op.phase), op.call_us());
    finding.stake_us += op.us;
    saved_us += std::max(0.0, op.us - estimate(op));
  }
  if (count == 0) return;
  finding.evidence = fmt::format("{} op{} {}; the longest is {}", count, count == 1 ? "" : "s", what, worst);
  finding.gain = saved_us / evidence.steps.wall_us;
  findings.push_back(std::move(finding));
}

void f32_lanes(const Evidence& evidence, std::vector<Finding>& findings) {
  for_all_ops(evidence, Cause::f32_lanes,
              "with f32 operands: no tensor core multiplies them, and they take twice the bytes",
              "set --dtype bf16, or use a model file in bf16", findings,
              [&](const OpEvidence& op) { return estimated_us(evidence, op, 0.5 * op.bytes, kTensorCores); });
}

void slower_than_bf16(const Evidence& evidence, std::vector<Finding>& findings) {
  for_all_ops(evidence, Cause::slower_than_bf16,
              "on quantised weights: bf16 weights would be faster at this batch, where each weight is read "
              "once for many tokens",
              "use a bf16 file for batches of this size, or lower --max-num-seqs for fewer sequences a step",
              findings, [&](const OpEvidence& op) { return estimated_bf16_us(evidence, op); });
}

void attention_split(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(
      evidence, Cause::attention_split, findings,
      [&](const OpEvidence& op, Finding& finding, double& saved_us) {
        const KernelLaunch& launch = *launch_of(evidence, op);
        saved_us = std::min(saved_us, op.us * (1.0 - launch.waves));
        finding.evidence +=
            fmt::format("; its {} block(s) fill {:.2f} of a wave: keys are split among too few",
                        launch.num_blocks(), launch.waves);
        finding.advice =
            "compute more sequences a step; look at how the op splits keys for this context (attention plan)";
      });
}

void small_grid(const Evidence& evidence, std::vector<Finding>& findings) {
  for_all_ops(evidence, Cause::small_grid,
              "whose blocks fill less than half of a wave: most multiprocessors have nothing to do",
              "compute more tokens a step (--max-num-seqs, more requests at once); use a smaller tile or "
              "split-K, or fuse neighbouring ops",
              findings, [&](const OpEvidence& op) {
                return op.us -
                       std::min(above_roof_us(evidence, op), op.us * (1.0 - launch_of(evidence, op)->waves));
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
            "use another tile for this shape, or batches that fill whole waves (--max-num-seqs, "
            "--max-num-batched-tokens)";
      });
}

void occupancy(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::occupancy, findings,
          [&](const OpEvidence& op, Finding& finding, double& saved_us) {
            const KernelLaunch& launch = *launch_of(evidence, op);
            saved_us = 0.5 * std::min(saved_us, kMoreWarps * op.us);
            finding.gain_from = 0.0;
            finding.gain_to = 2.0 * saved_us / evidence.steps.wall_us;
            finding.evidence += fmt::format(
                "; {:.0f} % of the warps that a multiprocessor holds fit, limited by {} ({} registers, {} "
                "KiB shared)",
                100.0 * launch.occupancy, name(launch.limiter), launch.registers,
                (launch.static_shared_bytes + launch.dynamic_shared_bytes) >> 10);
            finding.advice = fmt::format("lower the kernel's use of {}", name(launch.limiter));
          });
}

void latency_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::latency, findings, [&](const OpEvidence&, Finding& finding, double& saved_us) {
    saved_us *= evidence.on_device ? kReachable : kReachableOnCpu;
    finding.evidence += "; neither memory nor arithmetic is busy";
    finding.advice =
        evidence.on_device
            ? "keep more bytes in flight (longer loads, deeper pipelines), or fuse it with its neighbour"
            : "compute more tokens a step; use wider vectors, longer loops between barriers";
  });
}

void memory_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  std::vector<std::string> trials = narrower_kv_trial(evidence);
  const bool has_wide_weights = std::ranges::any_of(evidence.ops(), [](const OpEvidence& op) {
    return op.weights > 0.0 && op.weight_bytes >= 2.0 * op.weights;
  });
  if (evidence.on_device && has_wide_weights) trials.emplace_back("--quantization fp8");
  for_ops(evidence, Cause::memory, findings, [&](const OpEvidence& op, Finding& finding, double& saved_us) {
    saved_us *= 0.5;
    finding.trials = trials;
    finding.advice = "read fewer bytes: " + fewer_bytes(evidence, op) + "; a larger batch shares the weights";
  });
}

/// Keys and values in f16, which a CPU's attention reads sooner once they are more than its caches hold: of 1B at 4,096 tokens in 0.76 of
/// the time on two cores, of another machine in 0.48, while at 512 tokens (2 MB a call) turning them into f32 costs more than it saves.
/// A GPU gains where it waits for memory, and that is another rule's.
void wide_kv_cache(const Evidence& evidence, std::vector<Finding>& findings) {
  constexpr double kFewBytes = 8.0 * 1024.0 * 1024.0, kSavedFrom = 0.24, kSavedTo = 0.52;
  if (evidence.on_device || narrower_kv_type(evidence).empty()) return;
  double attention_us = 0.0;
  for (const OpEvidence& op : evidence.ops()) {
    const bool is_large = op.bytes >= kFewBytes * static_cast<double>(op.calls);
    if (op.kind == OpKind::attention && op.phase == StepPhase::decode && is_large) attention_us += op.us;
  }
  const double share = attention_us / evidence.steps.wall_us;
  if (share < kLeastShare) return;
  findings.push_back(
      {.evidence = fmt::format(
           "attention over long contexts takes {:.0f} % of the time, with keys and values of type {}",
           100.0 * share, evidence.text("kv_cache_dtype")),
       .stake_us = attention_us,
       .gain = 0.5 * (kSavedFrom + kSavedTo) * share,
       .gain_from = kSavedFrom * share,
       .gain_to = kSavedTo * share,
       .advice = fmt::format("set --kv-cache-dtype {}, which rounds them", narrower_kv_type(evidence)),
       .trials = narrower_kv_trial(evidence)});
}

void compute_bound(const Evidence& evidence, std::vector<Finding>& findings) {
  for_ops(evidence, Cause::compute, findings, [&](const OpEvidence&, Finding& finding, double& saved_us) {
    saved_us *= 0.5;
    finding.advice =
        "compute less (shorter prompts, --enable-prefix-caching), or use another tile for this shape";
  });
}

/// A type that a device could multiply in, beside the types of its ops.
struct IdleUnit {
  std::string_view type = {};
  double gflops = 0.0;
};

/// The fastest unit that could do the op's products, if it is faster than the one that does. Weights of more than 12 bits would lose what
/// int8 cannot hold. Ceilings that were all measured while others had the cores say nothing of each other.
IdleUnit idle_unit(const Ceilings& ceilings, const OpEvidence& op) {
  if (op.units.vectors > 0.0 || ceilings.runs == 0) return {};
  IdleUnit unit{"bf16", ceilings.bf16_gflops};
  if (has_quantised_weights(op) && ceilings.int8_gflops > unit.gflops) unit = {"int8", ceilings.int8_gflops};
  return unit.gflops > ceilings.gflops ? unit : IdleUnit{};
}

std::string unit_text(const Ceilings& ceilings, const IdleUnit& unit) {
  return fmt::format("units for {}, {:.1f} times as fast as f32 (measured)", unit.type,
                     unit.gflops / ceilings.gflops);
}

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
  const double most = saved_us / evidence.steps.wall_us;
  findings.push_back(
      {.evidence = fmt::format("ops bound by arithmetic, {} the longest, take {:.0f} % of the time in f32, "
                               "while the cores have {}",
                               longest, 100.0 * stake_us / evidence.steps.wall_us, text),
       .stake_us = stake_us,
       .gain = 0.5 * most,
       .gain_from = 0.0,
       .gain_to = most,
       .has_option = false,
       .advice = "nothing to set: this build's CPU products use f32, whatever units the cores have"});
}

/// Compares the counters with the counted bytes.
void rereads(const Evidence& evidence, std::vector<Finding>& findings) {
  for (const OpEvidence& op : evidence.ops()) {
    const auto found = evidence.reads.find(op.op);
    if (found == evidence.reads.end() || found->second.counted_bytes <= 0.0 || !op.memory_bound()) continue;
    const double ratio = found->second.measured_bytes / found->second.counted_bytes;
    if (ratio < kRereads || op.us < kLeastShare * evidence.steps.wall_us) continue;
    findings.push_back(
        {.evidence =
             fmt::format("{} ({}) reads {:.2f} times the bytes that it must (measured): it reads some again",
                         op.op, name(op.phase), ratio),
         .stake_us = op.us,
         .gain = op.us / evidence.steps.wall_us * (1.0 - 1.0 / ratio) * std::min(1.0, op.roofline() * ratio),
         .advice = "order its blocks so that those that share data run together, or use another tile"});
  }
}

void low_l2_hits(const Evidence& evidence, std::vector<Finding>& findings) {
  for (const OpEvidence& op : evidence.ops()) {
    const auto found = evidence.reads.find(op.op);
    if (found == evidence.reads.end() || found->second.us <= 0.0 || found->second.l2_hit <= 0.0) continue;
    const double hit = found->second.l2_hit / found->second.us;
    if (hit >= kLowHits || op.memory_bound() || op.us < kLeastShare * evidence.steps.wall_us) continue;
    findings.push_back({.evidence = fmt::format("{} ({}) is bound by arithmetic, yet only {:.0f} % of its "
                                                "reads hit the L2 cache (measured)",
                                                op.op, name(op.phase), 100.0 * hit),
                        .stake_us = op.us,
                        .gain = above_roof_us(evidence, op) / evidence.steps.wall_us * (1.0 - hit),
                        .advice = "order its blocks so that those that share data run together"});
  }
}

}  // namespace

std::string fewer_bytes(const Evidence& evidence, const OpEvidence& op) {
  if (op.kind == OpKind::attention) {
    const std::string_view narrower = narrower_kv_type(evidence);
    return narrower.empty() ? "a shorter context" : fmt::format("--kv-cache-dtype {}", narrower);
  }
  return has_quantised_weights(op) ? "weights of fewer bits" : "quantised weights";
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

std::span<const Rule> kernel_rules() {
  static constexpr std::array kRules{
      Rule{"f32 lanes", FindingGroup::kernels, f32_lanes},
      Rule{"slower than bf16", FindingGroup::kernels, slower_than_bf16},
      Rule{"attention split", FindingGroup::kernels, attention_split},
      Rule{"small grid", FindingGroup::kernels, small_grid},
      Rule{"tail wave", FindingGroup::kernels, tail_wave},
      Rule{"occupancy", FindingGroup::kernels, occupancy},
      Rule{"latency-bound", FindingGroup::kernels, latency_bound},
      Rule{"memory-bound", FindingGroup::kernels, memory_bound},
      Rule{"wide KV cache", FindingGroup::kernels, wide_kv_cache},
      Rule{"compute-bound", FindingGroup::kernels, compute_bound},
      Rule{"f32 arithmetic", FindingGroup::kernels, f32_arithmetic},
      Rule{"re-reads", FindingGroup::kernels, rereads},
      Rule{"L2 misses", FindingGroup::kernels, low_l2_hits},
  };
  return kRules;
}

}  // namespace minfer
