// Rules about the limits of devices: power, heat, settings, and other users. They rest on lines of minfer.device/1.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"

namespace minfer {
namespace {

constexpr double kAtLimit = 0.97;            // of a power limit or a highest clock: as good as all of it
constexpr int64_t kOthersBytes = 1ll << 30;  // of the device's memory, used by other programs
constexpr double kOthersTraffic = 0.05;      // of what the memory can move: below is not counted
constexpr double kRereadsAtMost = 1.2;       // bytes moved over bytes counted: more is a finding of its own
constexpr double kLongCallUs = 8.0;          // of a product, which then is no matter of its begin and end

/// The reasons that hold a clock back, the gravest first.
enum class Brake : uint8_t { heat, hardware, power, setting, none };
struct BrakeText {
  std::string_view cause, advice;
};
constexpr std::array kBrakes{
    BrakeText{"heat", "improve the cooling: fans, air flow, what else is in the chassis"},
    BrakeText{"the hardware (slowdown, power brake)",
              "check the machine's power supply and cables (nvidia-smi -q -d PERFORMANCE, dmesg)"},
    BrakeText{"a lowered power limit",
              "raise it with nvidia-smi -pl, as an administrator; or spend fewer joules a token, as with FP8 "
              "weights (a smaller batch needs more)"},
    BrakeText{
        "a setting of its clock",
        "undo it with nvidia-smi --reset-gpu-clocks and --reset-applications-clocks, as an administrator"}};

/// NVML does not name every setting: of such a one the clock is never higher than `highest`, and nothing holds it back.
Brake brake_of(const DeviceSample& reading, int32_t highest) {
  const auto has = [&](int32_t reasons) { return (reading.clock_reasons & reasons) != 0; };
  if (reading.sm_mhz == 0 || reading.sm_mhz >= kAtLimit * reading.most_sm_mhz) return Brake::none;
  if (has(clock_reason::heat | clock_reason::slowdown_by_heat)) return Brake::heat;
  if (has(clock_reason::slowdown | clock_reason::power_brake)) return Brake::hardware;
  const double limit_w = kAtLimit * reading.power_limit_w;
  if (has(clock_reason::power_limit) || (limit_w > 0.0 && reading.power_w >= limit_w)) return Brake::power;
  const bool is_never_higher = reading.clock_reasons == 0 && highest < kAtLimit * reading.most_sm_mhz;
  return has(clock_reason::setting) || is_never_higher ? Brake::setting : Brake::none;
}

/// A device's readings in which something held its clock back, in the mean.
struct HeldBack {
  int32_t device = 0;
  double share = 0.0;  ///< of all its readings
  double lost = 0.0;   ///< of the time, if all goes with the clock
  double sm_mhz = 0.0, power_w = 0.0, temperature_c = 0.0;
  DeviceSample last;  ///< has the limits

  std::string text() const {
    return fmt::format(
        "at {:.0f} of {:.0f} W and {:.0f} C the clock is {:.0f} of {} MHz, in {:.0f} % of the readings",
        power_w, last.power_limit_w, temperature_c, sm_mhz, last.most_sm_mhz, 100.0 * share);
  }
};

/// The readings of the device that loses most by `brake`.
HeldBack held_back(const Evidence& evidence, Brake brake) {
  HeldBack most;
  for (const auto& [device, readings] : evidence.devices()) {
    HeldBack held;
    held.device = device;
    double count = 0.0;
    const int32_t highest = std::ranges::max(readings, {}, &DeviceSample::sm_mhz).sm_mhz;
    for (const DeviceSample& reading : readings) {
      if (brake_of(reading, highest) != brake) continue;
      count += 1.0;
      held.sm_mhz += (reading.sm_mhz - held.sm_mhz) / count;
      held.power_w += (reading.power_w - held.power_w) / count;
      held.temperature_c += (reading.temperature_c - held.temperature_c) / count;
      held.last = reading;
    }
    held.share = count / static_cast<double>(readings.size());
    if (count > 0.0) held.lost = held.share * (1.0 - held.sm_mhz / held.last.most_sm_mhz);
    if (held.lost > most.lost) most = held;
  }
  return most;
}

/// Share of the wall time of ops that the memory does not bound: those go with the clock.
double clocked_share(const Evidence& evidence) {
  double us = 0.0;
  for (const OpEvidence& op : evidence.ops()) {
    if (op.floor_us > 0.0 && !op.memory_bound()) us += op.us;
  }
  return std::min(1.0, us / evidence.steps.wall_us);
}

void clocks_held_back(const Evidence& evidence, std::vector<Finding>& findings) {
  const double ops = std::min(1.0, evidence.steps.ops_us() / evidence.steps.wall_us);
  for (const Brake brake : {Brake::heat, Brake::hardware, Brake::power, Brake::setting}) {
    const HeldBack held = held_back(evidence, brake);
    const BrakeText& text = kBrakes[static_cast<size_t>(brake)];
    // At the highest limit it is the hardware that bounds it: the verdict says so.
    const bool is_power = brake == Brake::power;
    if (is_power && held.last.power_limit_w >= kAtLimit * held.last.most_power_limit_w) continue;
    const double from = is_power ? 0.0 : held.lost * clocked_share(evidence), to = held.lost * ops;
    if (to <= 0.0) continue;
    findings.push_back(
        {.evidence = fmt::format(
             "{} holds back the GPU of rank {}: {}{}", text.cause, held.device, held.text(),
             is_power ? fmt::format("; {:.0f} W could be set", held.last.most_power_limit_w) : ""),
         .stake_us = held.share * ops * evidence.steps.wall_us,
         .gain = 0.5 * (from + to),
         .gain_from = from,
         .gain_to = to,
         .advice = std::string(text.advice)});
  }
}

/// The share of the memory's roof that products reach on an otherwise unused device, by the bytes of a weight: from the least of runs in
/// tests/benchmarks/results on an H200, to the share of the products alone (products-2026-11-24.jsonl, 1 to 64 tokens).
struct UsualProducts {
  double bytes = 0.0, from = 0.0, to = 0.0;
};
constexpr std::array kUsual{UsualProducts{1.5, 0.65, 0.93}, UsualProducts{0.9, 0.5, 0.86},
                            UsualProducts{0.5, 0.3, 0.66}};

/// Products of decode steps that wait for the memory.
struct Products {
  double us = 0.0, floor_us = 0.0;
  double least_us = 0.0, most_us = 0.0;  ///< that they usually take
};

Products products_of(const Evidence& evidence) {
  Products products;
  if (evidence.header().activation_dtype == DType::f32) return products;  // without tensor cores
  for (const OpEvidence& op : evidence.ops()) {
    const bool is_product = op.kind == OpKind::linear || op.kind == OpKind::gate_up_swiglu;
    const auto usual = std::ranges::find_if(
        kUsual, [&](const UsualProducts& each) { return op.weight_bytes >= each.bytes * op.weights; });
    if (!is_product || op.phase != StepPhase::decode || !op.memory_bound() || op.weights <= 0.0 ||
        usual == kUsual.end() || op.call_us() < kLongCallUs)
      continue;
    products.us += op.us;
    products.floor_us += op.floor_us;
    products.least_us += op.floor_us / usual->to;
    products.most_us += op.floor_us / usual->from;
  }
  return products;
}

/// Who else is on the devices, at the most.
struct Others {
  int32_t processes = 0;
  int64_t bytes = 0;
  double traffic = 0.0;  ///< of the first device, of all processes: mean of the readings that have it
};

Others others_of(const Evidence& evidence) {
  Others others;
  double count = 0.0;
  for (const auto& [device, readings] : evidence.devices()) {
    for (const DeviceSample& reading : readings) {
      others.processes = std::max(others.processes, reading.other_processes);
      others.bytes = std::max(others.bytes, reading.other_bytes);
      if (device == 0 && reading.memory_traffic > 0.0)
        others.traffic += (std::min(reading.memory_traffic, 1.0) - others.traffic) / ++count;
    }
  }
  return others;
}

/// The extra time of ops because others use the memory all the time, so that no step shows the time without them. Estimated from how far
/// products are from their usual speed, and, if measured, from the memory traffic of others. Appends to `text`.
GainRange shared_memory_us(const Evidence& evidence, const Others& others, std::string& text) {
  const StepEvidence& steps = evidence.steps;
  const Products products = products_of(evidence);
  double waiting_us = 0.0, bytes = 0.0;
  for (const OpEvidence& op : evidence.ops()) {
    bytes += op.bytes;
    if (op.memory_bound() && op.floor_us > 0.0) waiting_us += op.us;
  }
  GainRange lost{.from = std::max(0.0, products.us - products.most_us), .to = waiting_us};
  if (products.us > 0.0) lost.to *= std::max(0.0, 1.0 - products.least_us / products.us);
  const double traffic = others.traffic;
  if (traffic > 0.0 && evidence.header().ceilings.known()) {
    const double own = bytes / evidence.header().ceilings.read_gbps * 1e-3 / (steps.wall_us + steps.idle_us);
    if (traffic < kRereadsAtMost * own + kOthersTraffic) return {};
    text += fmt::format("; the memory moved {:.0f} % of what it can, {:.0f} % for this process",
                        100.0 * traffic, 100.0 * own);
    if (products.us <= 0.0) lost.to = waiting_us * (1.0 - own / traffic);
  } else if (lost.from <= 0.0 || others.processes == 0) {
    return {};  // nothing is slower than usual, or nobody is there for sure
  }
  if (lost.from > 0.0) {
    text += fmt::format("; products reach {:.0f} % of the memory's roof, where {:.0f} to {:.0f} % are usual",
                        percent_of(products.floor_us, products.us),
                        percent_of(products.floor_us, products.most_us),
                        percent_of(products.floor_us, products.least_us));
  }
  return {.from = std::min(lost.from, lost.to), .to = lost.to};
}

void other_process(const Evidence& evidence, std::vector<Finding>& findings) {
  const int64_t before_bytes = evidence.header().memory.used_before_bytes;
  const StepEvidence& steps = evidence.steps;
  const Others others = others_of(evidence);
  if (others.processes == 0 && before_bytes < kOthersBytes) return;
  const double disturbed_us = evidence.disturbed_us();
  const double counted_us = disturbed_us + steps.kept_waiting_us;
  std::string text =
      others.processes > 0
          ? fmt::format("{} other process{} the device and {:.1f} GiB of its memory", others.processes,
                        others.processes == 1 ? " uses" : "es use",
                        static_cast<double>(others.bytes) / static_cast<double>(1 << 30))
          : fmt::format("other programs had {:.1f} GiB of the device's memory before this one began",
                        static_cast<double>(before_bytes) / static_cast<double>(1 << 30));
  text += fmt::format(
      "; in {:.0f} % of the time no op ran though the host waited for one, and ops took {:.0f} % longer than "
      "in the best steps",
      percent_of(steps.kept_waiting_us, steps.wall_us),
      percent_of(disturbed_us, steps.of(StepPhase::decode).ops_us - disturbed_us));
  const GainRange shared_us = shared_memory_us(evidence, others, text);
  const double counted = std::min(1.0, counted_us / steps.wall_us);
  const GainRange likely = likely_gain(counted, true);
  const GainRange shared{.from = shared_us.from / steps.wall_us, .to = shared_us.to / steps.wall_us};
  if (counted + shared.to <= 0.0) return;
  findings.push_back({.evidence = std::move(text),
                      .stake_us = std::max(counted_us, shared_us.to),
                      .gain = std::max(counted, 0.5 * (shared.from + shared.to)),
                      .gain_from = std::max(likely.from, shared.from),
                      .gain_to = std::max(likely.to, shared.to),
                      .advice = "run alone on the device (nvidia-smi names the others), or set "
                                "--gpu-memory-utilization to what they leave"});
}

}  // namespace

std::string bound_by_power(const Evidence& evidence) {
  const HeldBack held = held_back(evidence, Brake::power);
  constexpr double kMostReadings = 0.5;
  const bool is_bound = held.share >= kMostReadings && held.lost * clocked_share(evidence) >= kHealthyGain;
  return is_bound ? held.text() : std::string();
}

std::string clock_with_time(const Evidence& evidence) {
  const auto devices = evidence.devices();
  const auto first = devices.find(0);
  const size_t third = first == devices.end() ? 0 : first->second.size() / 3;
  if (third == 0) return {};
  const auto mean = [&](size_t begin) {
    double mhz = 0.0;
    for (size_t i = begin; i < begin + third; ++i)
      mhz += first->second[i].sm_mhz;
    return mhz / static_cast<double>(third);
  };
  return fmt::format("{:.0f} MHz and then {:.0f} MHz", mean(0), mean(first->second.size() - third));
}

std::string devices_text(const Evidence& evidence) {
  std::string text;
  for (const auto& [device, readings] : evidence.devices()) {
    DeviceSample best = readings.back();  // an idle device saves power at its link
    double sm_mhz = 0.0, power_w = 0.0;
    for (const DeviceSample& reading : readings) {
      sm_mhz += reading.sm_mhz / static_cast<double>(readings.size());
      power_w += reading.power_w / static_cast<double>(readings.size());
      best.memory_mhz = std::max(best.memory_mhz, reading.memory_mhz);
      best.pcie_generation = std::max(best.pcie_generation, reading.pcie_generation);
      best.pcie_width = std::max(best.pcie_width, reading.pcie_width);
    }
    text += fmt::format("; GPU of rank {} at {:.0f} of {} MHz, {:.0f} of {:.0f} W, {} C", device, sm_mhz,
                        best.most_sm_mhz, power_w, best.power_limit_w, best.temperature_c);
    if (best.memory_mhz < kAtLimit * best.most_memory_mhz)
      text += fmt::format(", its memory at {} of {} MHz", best.memory_mhz, best.most_memory_mhz);
    if (best.pcie_generation < best.most_pcie_generation || best.pcie_width < best.most_pcie_width)
      text += fmt::format(", PCIe {}.0 x{} where {}.0 x{} could be", best.pcie_generation, best.pcie_width,
                          best.most_pcie_generation, best.most_pcie_width);
    if (best.ecc_errors > 0) text += fmt::format(", {} ECC errors that were not corrected", best.ecc_errors);
  }
  return text;
}

std::span<const Rule> device_rules() {
  static constexpr std::array kRules{
      Rule{"clocks held back", FindingGroup::system, clocks_held_back},
      Rule{"another process", FindingGroup::system, other_process},
  };
  return kRules;
}

}  // namespace minfer
