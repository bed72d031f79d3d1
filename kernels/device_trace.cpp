#include "kernels/device_trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace minfer {
namespace {

constexpr int64_t kSlackNs = 1'000'000;

/// A line from the library's clock to now_ns().
class ClockMap {
 public:
  ClockMap() = default;
  ClockMap(const TraceRecords::ClockPair& start, const TraceRecords::ClockPair& stop)
      : library_ns_(start.library_ns), host_ns_(start.host_ns) {
    // Reading a pair takes a microsecond: with too little time between two pairs, the rate is unknown.
    constexpr int64_t kLeastNs = 10'000'000;
    const int64_t library_ns = stop.library_ns - start.library_ns;
    if (library_ns >= kLeastNs)
      rate_ = static_cast<double>(stop.host_ns - start.host_ns) / static_cast<double>(library_ns);
  }
  int64_t host_ns(int64_t library_ns) const {
    const int64_t since = library_ns - library_ns_;
    return host_ns_ + since + std::llround(static_cast<double>(since) * (rate_ - 1.0));
  }

 private:
  int64_t library_ns_ = 0, host_ns_ = 0;
  double rate_ = 1.0;
};

/// The known facts about the calls of one correlation.
struct KnownCall {
  int64_t step = -1;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  ///< of the outermost call; 0: no record of it
};
using KnownCalls = std::unordered_map<uint32_t, KnownCall>;

KnownCalls known_calls(const TraceRecords& records) {
  KnownCalls known;
  known.reserve(std::max(records.calls.size(), records.call_steps.size()));
  for (const TraceRecords::CallStep& call : records.call_steps)
    known[call.correlation].step = call.step;
  for (const TraceRecords::Call& call : records.calls) {
    KnownCall& entry = known[call.correlation];
    entry.begin_ns = entry.end_ns == 0 ? call.begin_ns : std::min(entry.begin_ns, call.begin_ns);
    entry.end_ns = std::max(entry.end_ns, call.end_ns);
  }
  return known;
}

/// The window that holds `host_ns`; null: none.
const TraceRecords::Window* window_at(const std::vector<TraceRecords::Window>& windows, int64_t host_ns) {
  const auto behind = std::ranges::upper_bound(windows, host_ns, {}, &TraceRecords::Window::begin_ns);
  if (behind == windows.begin()) return nullptr;
  const TraceRecords::Window& window = *(behind - 1);
  return host_ns <= window.end_ns ? &window : nullptr;
}

/// The number of steps' calls that lie in the windows of their steps.
int64_t num_in_place(const KnownCalls& calls, const std::vector<TraceRecords::Window>& windows,
                     const ClockMap& clock) {
  return std::ranges::count_if(calls, [&](const auto& entry) {
    const KnownCall& call = entry.second;
    if (call.step < 0 || call.end_ns == 0) return false;
    const TraceRecords::Window* window = window_at(windows, clock.host_ns(call.begin_ns));
    return window != nullptr && window->step == call.step;
  });
}

/// Returns whether the times of `record`, by `clock`, are possible.
bool is_possible(const TraceRecords::Activity& record, const TraceRecords& records, const ClockMap& clock) {
  return record.begin_ns > 0 && record.end_ns >= record.begin_ns &&
         clock.host_ns(record.begin_ns) >= records.start.host_ns - kSlackNs &&
         clock.host_ns(record.end_ns) <= records.stop.host_ns + kSlackNs;
}

/// True if the profiler itself launches kernels of that name, beside the steps: those that ask for the device's time around windows
/// of hardware counters.
bool is_of_profiler(std::string_view kernel) {
  return kernel == "tell_time";  // kernels/cuda/profiler/device_timer.cu
}

int64_t num_possible(const TraceRecords& records, const ClockMap& clock) {
  return std::ranges::count_if(records.activities, [&](const TraceRecords::Activity& record) {
    return is_possible(record, records, clock);
  });
}

}  // namespace

std::vector<TraceRecords> split_devices(TraceRecords records, int32_t count) {
  const auto is_other = [&](const auto& each) { return each.device < 0 || each.device >= count; };
  std::vector<TraceRecords> split(static_cast<size_t>(std::max(1, count)));
  std::unordered_map<uint32_t, size_t> device_of;  // by correlation
  for (const TraceRecords::Activity& activity : records.activities) {
    if (is_other(activity)) continue;
    const auto device = static_cast<size_t>(activity.device);
    if (count > 1) device_of.try_emplace(activity.correlation, device);
    split[device].activities.push_back(activity);
  }
  const auto records_of = [&](uint32_t correlation) -> TraceRecords& {
    const auto device = device_of.find(correlation);
    return device == device_of.end() ? split.front() : split[device->second];
  };
  for (const TraceRecords::Call& call : records.calls)
    records_of(call.correlation).calls.push_back(call);
  for (const TraceRecords::CallStep& call : records.call_steps)
    records_of(call.correlation).call_steps.push_back(call);
  for (const TraceRecords::Window& window : records.windows) {
    if (!is_other(window)) split[static_cast<size_t>(window.device)].windows.push_back(window);
  }
  for (TraceRecords& each : split) {
    each.names = records.names;
    each.start = records.start;
    each.stop = records.stop;
  }
  split.front().dropped = records.dropped;
  split.front().overhead_ns = records.overhead_ns;
  return split;
}

std::string_view name(ActivityKind kind) {
  static constexpr std::array<std::string_view, 3> kNames{"kernel", "memcpy", "memset"};
  return kNames[static_cast<size_t>(kind)];
}

DeviceTrace join(TraceRecords records) {
  const KnownCalls calls = known_calls(records);
  const ClockMap converted(records.start, records.stop);
  DeviceTrace trace;
  const bool converts_calls =
      num_in_place(calls, records.windows, converted) > num_in_place(calls, records.windows, {});
  const bool converts_activities = num_possible(records, converted) > num_possible(records, {});
  trace.own_clock = converts_calls || converts_activities;
  const ClockMap clock = converts_activities ? converted : ClockMap();
  const ClockMap call_clock = converts_calls ? converted : ClockMap();

  struct Ordered {
    DeviceActivity activity;
    uint32_t correlation;
  };
  std::vector<Ordered> ordered;
  ordered.reserve(records.activities.size());
  for (const TraceRecords::Activity& record : records.activities) {
    if (record.name >= 0 && record.name < std::ssize(records.names) &&
        is_of_profiler(records.names[static_cast<size_t>(record.name)])) {
      ++trace.of_profiler;
      continue;
    }
    DeviceActivity activity{.kind = record.kind,
                            .begin_ns = clock.host_ns(record.begin_ns),
                            .end_ns = clock.host_ns(record.end_ns),
                            .graph_node = record.graph_node,
                            .stream = record.stream,
                            .name = record.name,
                            .bytes = record.bytes};
    if (!is_possible(record, records, clock)) {
      ++trace.invalid;
      continue;
    }
    if (const auto call = calls.find(record.correlation); call != calls.end()) {
      activity.step = call->second.step;
      if (call->second.end_ns > 0) {
        activity.launch_ns = call_clock.host_ns(call->second.end_ns);
        const auto* window = window_at(records.windows, call_clock.host_ns(call->second.begin_ns));
        if (activity.step < 0 && window != nullptr) activity.step = window->step;
      }
    }
    ordered.push_back({activity, record.correlation});
  }
  std::ranges::stable_sort(ordered, {}, [](const Ordered& entry) {
    return std::tuple(entry.activity.begin_ns, entry.correlation, entry.activity.graph_node);
  });
  trace.activities.reserve(ordered.size());
  for (const Ordered& entry : ordered)
    trace.activities.push_back(entry.activity);
  trace.names = std::move(records.names);
  trace.dropped = records.dropped;
  trace.overhead_ns = records.overhead_ns;
  return trace;
}

}  // namespace minfer
