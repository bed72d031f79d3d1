// Rules about time that the machine takes from computing threads. They rest on lines of minfer.host/1.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "profiling/findings/measured_pairs.h"
#include "profiling/findings/rules.h"

namespace minfer {
namespace {

constexpr int64_t kFewFaults = 16;  // pages that any program needs late, beside the model's
constexpr double kMiB = 1024.0 * 1024.0;

/// No step goes on while the engine's thread waits; while another one waits, those that run take its part, or wait for it. On a device
/// only what no op covers is lost.
GainRange waited(const Evidence& evidence, const HostSample& host) {
  const double room_us = evidence.on_device ? evidence.steps.exposed_us() : evidence.steps.wall_us;
  const double least_us = evidence.on_device ? 0.0 : host.engine_waited_us;
  return {.from = std::min(least_us, room_us), .to = std::min(host.any_waited_us, room_us)};
}

GainRange without(const GainRange& lost, double others_us) {
  return {.from = std::max(0.0, lost.from - others_us), .to = std::max(0.0, lost.to - others_us)};
}

void add(const Evidence& evidence, GainRange lost, std::string text, std::string advice,
         std::vector<Finding>& findings, std::vector<std::string> trials = {}) {
  const double wall_us = evidence.steps.wall_us;
  lost.to = std::min(lost.to, wall_us);
  lost.from = std::min(lost.from, lost.to);
  if (lost.to <= 0.0) return;
  findings.push_back({.evidence = std::move(text),
                      .stake_us = lost.to,
                      .gain = 0.5 * (lost.from + lost.to) / wall_us,
                      .gain_from = lost.from / wall_us,
                      .gain_to = lost.to / wall_us,
                      .estimated = false,
                      .advice = std::move(advice),
                      .trials = std::move(trials)});
}

/// Cores that the process may use; 0: not known.
double allowed_cores(const Evidence& evidence, const HostSample& host) {
  const auto cores = static_cast<double>(evidence.header().cores);
  return host.quota_cores > 0.0 && cores > 0.0 ? std::min(cores, host.quota_cores) : cores;
}

bool has_too_many_threads(const Evidence& evidence, const HostSample& host) {
  const double cores = allowed_cores(evidence, host);
  return cores > 0.0 && static_cast<double>(threads_of(evidence)) >= cores + 1.0;
}

double throttled_us(const HostSample& host) {
  return host.throttled_us / std::max(1.0, host.quota_cores);
}

void cores_taken(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  if (host.threads == 0 || has_too_many_threads(evidence, host)) return;
  const GainRange lost = without(waited(evidence, host), throttled_us(host));
  add(evidence, lost,
      fmt::format(
          "{} waited for a core in {:.0f} % of the time, the engine's thread in {:.0f} %: up to {} "
          "threads of the machine wanted to run at once, on {} core(s)",
          host.threads == 1 ? "the compute thread" : fmt::format("some of {} compute threads", host.threads),
          percent_of(host.any_waited_us, host.wall_us()), percent_of(host.engine_waited_us, host.wall_us()),
          host.runnable, evidence.header().cores),
      "end other programs (top names them), or give this process cores of its own (taskset)", findings);
}

void too_many_threads(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  if (host.threads == 0 || !has_too_many_threads(evidence, host)) return;
  const double cores = allowed_cores(evidence, host);
  // Meanwhile the cores run other threads of the process: the loss is between nothing and the wait of the engine's thread.
  add(evidence, {.to = without(waited(evidence, host), throttled_us(host)).from},
      fmt::format(
          "{} threads compute on {:.3g} core(s): some of them wait for a core in {:.0f} % of the time",
          threads_of(evidence), cores, percent_of(host.any_waited_us, host.wall_us())),
      fmt::format("set --threads {:.0f}", std::max(1.0, cores)), findings,
      {fmt::format("--threads {}", std::max(1, evidence.header().cores))});
}

void cpu_quota(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  if (host.quota_cores <= 0.0) return;
  add(evidence, {.from = 0.5 * throttled_us(host), .to = throttled_us(host)},
      fmt::format(
          "the control group's quota of {:.3g} core(s) held the process back for {:.0f} % of the time",
          host.quota_cores, percent_of(throttled_us(host), host.wall_us())),
      fmt::format("raise the quota (docker run --cpus, Kubernetes limits.cpu) or remove it; with this one, "
                  "set --threads to {:.0f} at most",
                  std::max(1.0, host.quota_cores)),
      findings);
}

void stolen(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  // One core may have lost all of it, or each its part at another time.
  const double cores = std::max(1, evidence.header().cores);
  // A device goes on meanwhile, but where it waits for the host.
  const double most_us =
      evidence.on_device ? evidence.steps.exposed_us() + evidence.steps.idle_host_us : cores * host.stolen_us;
  add(evidence, {.from = std::min(host.stolen_us, most_us), .to = std::min(cores * host.stolen_us, most_us)},
      fmt::format("the hypervisor gave {:.0f} % of the cores' time to other virtual machines",
                  percent_of(host.stolen_us, host.wall_us())),
      "use a machine whose cores are not shared", findings);
}

void slow_core(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  constexpr double kOfBusyCores = 0.9;  // of the highest clock, with all cores busy
  if (evidence.on_device || host.core_mhz <= 0.0 || host.core_mhz >= kOfBusyCores * host.most_core_mhz)
    return;
  const double lost = 1.0 - host.core_mhz / host.most_core_mhz;
  add(evidence, {.to = lost * evidence.steps.wall_us},
      fmt::format("the engine's core ran at {:.0f} of {:.0f} MHz", host.core_mhz, host.most_core_mhz),
      "choose the governor \"performance\" (cpupower frequency-set), and see that the processor is cooled "
      "and has no "
      "power limit",
      findings);
}

void read_from_disk(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  if (host.disk_faults < kFewFaults || host.swapped_bytes > 0) return;
  add(evidence, {.to = host.disk_stalled_us},
      fmt::format(
          "the process waited for {} pages, such as those of the mapped model file, of which {:.0f} MiB were "
          "in "
          "its memory at the end, and some thread of the machine waited for a disk in {:.0f} % of the time",
          host.disk_faults, static_cast<double>(host.file_bytes) / kMiB,
          percent_of(host.disk_stalled_us, host.wall_us())),
      "run the model once before, with more free memory than the size of its file, so that the file stays in "
      "memory; else use a smaller type of weights",
      findings);
}

void swapping(const Evidence& evidence, std::vector<Finding>& findings) {
  const HostSample host = evidence.host();
  if (host.swapped_bytes == 0 || host.disk_faults < kFewFaults) return;
  const double us = std::max(host.disk_stalled_us, host.memory_stalled_us);
  add(evidence, {.to = us},
      fmt::format("{:.0f} MiB of the process are swapped out, it waited for {} pages, and some thread of the "
                  "machine waited for memory or a disk in {:.0f} % of the time",
                  static_cast<double>(host.swapped_bytes) / kMiB, host.disk_faults,
                  percent_of(us, host.wall_us())),
      "add memory, or use less: lower --kv-cache-memory, use a smaller type of weights, end other programs",
      findings);
}

}  // namespace

std::span<const Rule> host_rules() {
  static constexpr std::array kRules{
      Rule{"cores taken", FindingGroup::system, cores_taken},
      Rule{"more threads than cores", FindingGroup::system, too_many_threads},
      Rule{"CPU quota", FindingGroup::system, cpu_quota},
      Rule{"stolen time", FindingGroup::system, stolen},
      Rule{"slow core", FindingGroup::system, slow_core},
      Rule{"reads from the disk", FindingGroup::system, read_from_disk},
      Rule{"swapping", FindingGroup::system, swapping},
  };
  return kRules;
}

}  // namespace minfer
