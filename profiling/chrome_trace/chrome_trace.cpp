#include "profiling/chrome_trace/chrome_trace.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

#include "kernels/base/error.h"
#include "profiling/chrome_trace/host_timeline.h"
#include "profiling/chrome_trace/kernel_tracks.h"
#include "profiling/chrome_trace/step_tracks.h"

namespace minfer {
namespace {

using KernelsOfSteps = std::unordered_map<int64_t, std::span<const KernelLine>>;

/// The first rank's kernels of each step. A file has the kernels of a step one behind the other.
KernelsOfSteps kernels_by_step(const std::vector<KernelLine>& kernels) {
  KernelsOfSteps steps;
  for (size_t begin = 0; begin < kernels.size();) {
    size_t end = begin + 1;
    while (end < kernels.size() && kernels[end].step == kernels[begin].step &&
           kernels[end].rank == kernels[begin].rank)
      ++end;
    if (kernels[begin].rank == 0)
      steps.try_emplace(kernels[begin].step, std::span(kernels).subspan(begin, end - begin));
    begin = end;
  }
  return steps;
}

/// Times of a trace begin a second before its first step, so that the host's work for that step is not before the begin.
int64_t base_ns_of(const ProfileFile& file) {
  constexpr int64_t kSecondNs = 1'000'000'000;
  return std::max<int64_t>(0, span_of(file.steps.front()).begin_ns - kSecondNs);
}

/// The parts that the profile lacks.
void append_losses(JsonText& json, const ProfileFile& file) {
  uint64_t dropped = 0, invalid = 0, unmatched = 0, missing = 0;
  for (const RangeLine& range : file.ranges) {
    dropped += static_cast<uint64_t>(range.dropped);
    invalid += static_cast<uint64_t>(range.invalid);
    unmatched += static_cast<uint64_t>(range.unmatched);
    missing += static_cast<uint64_t>(range.missing);
  }
  json.field("dropped steps", file.steps.back().dropped).field("dropped kernels", dropped);
  json.field("kernels with invalid times", invalid).field("kernels of no launch", unmatched);
  json.field("launches without a kernel", missing);
}

/// The file's keys beside its events.
std::string head_of(const ProfileFile& file, int64_t base_ns) {
  const ProfileHeader& header = file.header;
  std::string head;
  JsonText json(head);
  json.open('{').field("schemaVersion", 1).field("displayTimeUnit", "ns");
  json.field("baseTimeNanoseconds", bounded_ns(header.unix_ns) - bounded_ns(header.clock_ns) + base_ns);
  // For Holistic Trace Analysis: one process, with one device. It looks for the rank as text, with a space in front of the number.
  head += R"(,"distributedInfo":{"backend":"none","rank": 0,"world_size":1})";
  json.key("deviceProperties").open('[').open('{').field("id", 0);
  json.field("name", header.device);
  json.field("totalGlobalMem", header.memory.total_bytes).close('}').close(']');
  json.key("minfer").open('{').field("version", header.version);
  json.field("model", header.model).field("note", file.note);
  append_losses(json, file);
  json.close('}');
  return head;
}

std::string device_title(const ProfileHeader& header) {
  return fmt::format("{} {}", header.backend == "cuda" ? "GPU" : "CPU", header.device);
}

/// One trace while it is written. It gets the steps in order, with their data. Only this class knows the order in which a
/// profile has its lines.
class TraceWriter {
 public:
  TraceWriter(const StepFilter& filter, TraceEvents& events, const ProfileHeader& header)
      : filter_(filter), events_(events), tracks_(events, device_title(header)), kernels_(events, tracks_) {}

  void add(const StepSummary& step, std::span<const KernelLine> kernels,
           std::span<const KernelLaunch> launches, const CounterStep* measured) {
    const bool is_chosen = filter_.takes(step);
    if (is_chosen) chosen_.insert(step.step);
    host_.add(step, last_launch_ns(kernels), visit_);
    if (!is_chosen) return;
    if (counts_.steps == 0) first_ns_ = span_of(step).begin_ns;
    last_ns_ = span_of(step).end_ns;
    ++counts_.steps;
    counts_.kernels += std::ssize(kernels);
    write_ops(events_, tracks_, step, place_ops(step, kernels));
    kernels_.add(kernels, launches);
    write_requests(events_, tracks_, step, filter_.request);
    write_counters(events_, tracks_, step);
    if (measured != nullptr)
      write_measured(events_, tracks_.counters(), kMemoryCurves, *measured, span_of(step).begin_ns);
  }
  /// Behind the last step.
  TraceCounts finish(const ProfileFile& file, int64_t base_ns) {
    host_.finish(visit_);
    const auto lies_within = [this](const auto& sample) {
      return sample.end_ns > first_ns_ && sample.begin_ns < last_ns_;
    };
    for (const HostSample& sample : file.host) {
      if (lies_within(sample)) write_host(events_, tracks_, sample);
    }
    for (const DeviceSample& sample : file.devices) {
      if (lies_within(sample)) write_device(events_, tracks_, sample);
    }
    write_ranks(events_, tracks_, file.rank_steps, base_ns, chosen_);
    write_rank_kernels(events_, tracks_, file.kernels, base_ns, chosen_);
    write_rank_counters(events_, tracks_, file.counters, file.rank_steps, base_ns, chosen_);
    return counts_;
  }

 private:
  /// The name follows PyTorch's profiler; tools find the iterations of a trace by it.
  void write_launch(const HostTimeline::Launch& launch) {
    if (!chosen_.contains(launch.step)) return;
    events_
        .add_slice(tracks_.engine(), fmt::format("ProfilerStep#{}", launch.step), "user_annotation",
                   launch.span)
        .field("step", launch.step)
        .field("begin known by", name(launch.begin));
  }
  void write_part(const HostTimeline::Part& part) {
    if (!chosen_.contains(part.step)) return;
    events_.add_slice(tracks_.engine(), name(part.kind), "cpu_op", part.span).field("step", part.step);
  }

  const StepFilter& filter_;
  TraceEvents& events_;
  Tracks tracks_;
  KernelTracks kernels_;
  HostTimeline host_;
  const HostTimeline::Visit visit_{[this](const HostTimeline::Launch& launch) { write_launch(launch); },
                                   [this](const HostTimeline::Part& part) { write_part(part); }};
  StepSet chosen_;
  int64_t first_ns_ = 0, last_ns_ = 0;  ///< begin of the first of these, end of the last
  TraceCounts counts_;
};

void check_steps(const ProfileFile& file, const StepFilter& filter) {
  if (file.steps.empty()) fail("the profile holds no step: there is nothing to draw");
  if (std::ranges::any_of(file.steps, [&](const StepSummary& step) { return filter.takes(step); })) return;
  fail(
      "no step is left: the profile holds {} steps from {} to {}, and none is as --steps, --phase and "
      "--request say",
      file.steps.size(), file.steps.front().step, file.steps.back().step);
}

}  // namespace

TraceCounts write_chrome_trace(const ProfileFile& file, const StepFilter& filter,
                               const TraceEvents::Write& write) {
  check_steps(file, filter);
  const int64_t base_ns = base_ns_of(file);
  TraceEvents events(write, base_ns);
  events.open_file(head_of(file, base_ns));
  KernelsOfSteps kernels = kernels_by_step(file.kernels);
  std::unordered_map<int64_t, const CounterStep*> measured;
  for (const CounterWindow& window : file.counters) {
    if (window.rank != 0) continue;
    for (const CounterStep& step : window.steps)
      measured[step.step] = &step;
  }
  TraceWriter writer(filter, events, file.header);
  for (const StepSummary& step : file.steps) {
    const auto of_step = kernels.extract(step.step);
    const auto step_measured = measured.find(step.step);
    writer.add(step, of_step ? of_step.mapped() : std::span<const KernelLine>(), file.launches,
               step_measured != measured.end() ? step_measured->second : nullptr);
  }
  TraceCounts counts = writer.finish(file, base_ns);
  for (const auto& [step, left] : kernels)
    counts.without_step += std::ssize(left);
  events.close_file();
  return counts;
}

}  // namespace minfer
