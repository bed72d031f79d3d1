#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include <fmt/format.h>

#include "profiling/chrome_trace/step_tracks.h"

namespace minfer {
namespace {

/// More than any run has: what a file says beyond is left out.
constexpr int32_t kMostRanks = 1024;

constexpr MeasuredCurves kLinkCurves{
    "NVLink GB/s measured",
    {{{"received", Counter::nvlink_received_bytes}, {"sent", Counter::nvlink_sent_bytes}}}};

void write_rank_step(TraceEvents& events, Track track, const RankStep& step, TimeSpan span) {
  JsonText& args = events.add_slice(track, fmt::format("step {}", step.step), "rank step", span);
  args.field("step", step.step).field("rank", step.rank);
  const auto add_known = [&](std::string_view name, int64_t ns) {
    if (ns != RankStep::kNotKnown) args.field(name, us_of(ns));
  };
  add_known("host us", step.host_ns);
  add_known("launch us", step.launch_ns);
  add_known("idle us", step.idle_ns);
  struct Part {
    std::string_view name;
    int64_t ns;
  };
  const std::array parts{Part{"computing", step.computed_ns}, Part{"waiting for ranks", step.waited_ns},
                         Part{"exchanging", std::max<int64_t>(0, step.exchange_ns - step.waited_ns)}};
  int64_t begin_ns = span.begin_ns;
  for (const Part& part : parts) {
    const int64_t end_ns =
        std::min(later_ns(begin_ns, std::clamp<int64_t>(part.ns, 0, kLatestNs)), span.end_ns);
    if (end_ns == begin_ns) continue;
    events.add_slice(track, part.name, "rank", {begin_ns, end_ns})
        .field("step", step.step)
        .field("time", "summed over ops, laid end to end");
    begin_ns = end_ns;
  }
}

}  // namespace

void write_ranks(TraceEvents& events, Tracks& tracks, std::span<const RankStep> steps, int64_t least_ns,
                 const StepSet& shown) {
  std::map<int32_t, std::vector<RankStep>> by_rank;
  for (const RankStep& step : steps) {
    if (step.rank < kMostRanks && shown.contains(step.step)) by_rank[step.rank].push_back(step);
  }
  for (auto& [rank, of_rank] : by_rank) {
    std::ranges::stable_sort(of_rank, {}, &RankStep::begin_ns);
    int64_t last_ns = least_ns;
    for (const RankStep& step : of_rank) {
      const TimeSpan span{bounded_ns(step.begin_ns), bounded_ns(step.end_ns)};
      write_rank_step(events, tracks.rank(rank), step, take_own(span, last_ns));
    }
  }
}

void write_rank_kernels(TraceEvents& events, Tracks& tracks, std::span<const KernelLine> kernels,
                        int64_t least_ns, const StepSet& shown) {
  std::map<std::pair<int32_t, int32_t>, std::vector<const KernelLine*>> streams;
  for (const KernelLine& kernel : kernels) {
    if (kernel.rank > 0 && kernel.rank < kMostRanks && shown.contains(kernel.step))
      streams[{kernel.rank, kernel.stream}].push_back(&kernel);
  }
  for (auto& [stream, of_stream] : streams) {
    std::ranges::stable_sort(of_stream, {}, [](const KernelLine* kernel) { return kernel->start_ns; });
    int64_t last_ns = least_ns;
    for (const KernelLine* kernel : of_stream) {
      events
          .add_slice(tracks.rank_stream(stream.first, stream.second),
                     kernel->kernel.empty() ? name(kernel->kind) : std::string_view(kernel->kernel),
                     "rank kernel", take_own(span_of(*kernel), last_ns))
          .field("step", kernel->step)
          .field("op", kernel->op)
          .field("whole us", kernel->us)
          .field("launch delay us", kernel->launch_delay_us);
    }
  }
}

void write_rank_counters(TraceEvents& events, Tracks& tracks, std::span<const CounterWindow> windows,
                         std::span<const RankStep> steps, int64_t least_ns, const StepSet& shown) {
  if (std::ranges::none_of(windows, [](const CounterWindow& window) { return window.rank > 0; })) return;
  std::map<std::pair<int32_t, int64_t>, int64_t> begins_ns;  // by rank and step
  for (const RankStep& step : steps)
    begins_ns[{step.rank, step.step}] = std::max(bounded_ns(step.begin_ns), least_ns);
  struct Point {
    int64_t begin_ns;
    const CounterStep* step;
  };
  std::map<int32_t, std::vector<Point>> ranks;
  for (const CounterWindow& window : windows) {
    if (window.rank >= kMostRanks) continue;
    for (const CounterStep& step : window.steps) {
      const auto found = begins_ns.find({window.rank, step.step});
      if (found != begins_ns.end() && shown.contains(step.step))
        ranks[window.rank].push_back({found->second, &step});
    }
  }
  for (auto& [rank, points] : ranks) {
    std::ranges::stable_sort(points, {}, &Point::begin_ns);
    const int32_t process = tracks.rank_counters(rank);
    for (const Point& point : points) {
      write_measured(events, process, kMemoryCurves, *point.step, point.begin_ns);
      const CounterValues& measured = point.step->measured;
      if (measured.has(Counter::nvlink_received_bytes) || measured.has(Counter::nvlink_sent_bytes))
        write_measured(events, process, kLinkCurves, *point.step, point.begin_ns);
    }
  }
}

}  // namespace minfer
