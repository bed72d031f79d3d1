#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "kernels/device_sample.h"
#include "profiling/chrome_trace/op_timeline.h"
#include "profiling/chrome_trace/tracks.h"
#include "profiling/counters/counter_window.h"
#include "profiling/host/host_sample.h"
#include "profiling/record/rank_step.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// Writes a step on the device's track of steps: the step, runs of ops of one phase, of one layer, and the ops, nested.
void write_ops(TraceEvents& events, Tracks& tracks, const StepSummary& step, const OpTimeline& timeline);

/// Writes a slice for each request that the step served, on the request's own track: the step's work for it. `only`: just this
/// request; empty: all.
void write_requests(TraceEvents& events, Tracks& tracks, const StepSummary& step, std::string_view only);

/// Writes the counters of a step at its begin: tokens of the batch, requests, blocks of the KV cache, and the counted bytes of its ops
/// over their time.
void write_counters(TraceEvents& events, Tracks& tracks, const StepSummary& step);

/// Writes the time that the machine took from computing threads, as shares of a sample's time, at its begin.
void write_host(TraceEvents& events, Tracks& tracks, const HostSample& sample);
void write_device(TraceEvents& events, Tracks& tracks, const DeviceSample& sample);

/// Hardware counters of bytes, as curves of one diagram.
struct MeasuredCurves {
  std::string_view title;
  std::array<std::pair<std::string_view, Counter>, 2> curves;
};
inline constexpr MeasuredCurves kMemoryCurves{
    "GB/s measured", {{{"read", Counter::dram_read_bytes}, {"written", Counter::dram_written_bytes}}}};

/// Writes the counters of the step at `begin_ns`, over its time, on process `process`.
void write_measured(TraceEvents& events, int32_t process, const MeasuredCurves& of, const CounterStep& step,
                    int64_t begin_ns);

/// Numbers of steps.
using StepSet = std::unordered_set<int64_t>;

/// Writes the times of steps on each of several ranks, one process per rank: the step, and within it computing, waiting for other ranks
/// and moving bytes, each summed over the step's ops and laid end to end. Only of the `shown` steps. Nothing begins before
/// `least_ns`.
void write_ranks(TraceEvents& events, Tracks& tracks, std::span<const RankStep> steps, int64_t least_ns,
                 const StepSet& shown);

/// Writes the kernels, copies and fills of ranks other than the first, each for the time in which no earlier activity ran.
void write_rank_kernels(TraceEvents& events, Tracks& tracks, std::span<const KernelLine> kernels,
                        int64_t least_ns, const StepSet& shown);

/// Writes the hardware counters of steps on each of several ranks, as curves of the rank's process over the step's time there:
/// bytes of memory, and bytes that NVLink received and sent. Steps are left out if `steps` lacks the rank's begin.
/// Writes nothing if only the first rank's counters were read: the device's curves have those.
void write_rank_counters(TraceEvents& events, Tracks& tracks, std::span<const CounterWindow> windows,
                         std::span<const RankStep> steps, int64_t least_ns, const StepSet& shown);

}  // namespace minfer
