#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "profiling/chrome_trace/tracks.h"
#include "profiling/counters/counter_window.h"
#include "profiling/record/rank_step.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// Writes the times of steps on each of several ranks, one process per rank: the step, and within it computing, waiting for other ranks
/// and moving bytes, each summed over the step's ops and laid end to end. `is_shown`: by a step's number. Nothing begins before
/// `least_ns`.
void write_ranks(TraceEvents& events, Tracks& tracks, std::span<const RankStep> steps, int64_t least_ns,
                 const std::function<bool(int64_t step)>& is_shown);

/// Writes the kernels, copies and fills of ranks other than the first, each for the time in which no earlier activity ran.
void write_rank_kernels(TraceEvents& events, Tracks& tracks, std::span<const KernelLine> kernels,
                        int64_t least_ns, const std::function<bool(int64_t step)>& is_shown);

/// Writes the hardware counters of steps on each of several ranks, as curves of the rank's process over the step's time there:
/// bytes of memory, and bytes that NVLink received and sent. Steps are left out if `steps` lacks the rank's begin.
/// Writes nothing if only the first rank's counters were read: the device's curves have those.
void write_rank_counters(TraceEvents& events, Tracks& tracks, std::span<const CounterWindow> windows,
                         std::span<const RankStep> steps, int64_t least_ns,
                         const std::function<bool(int64_t step)>& is_shown);

}  // namespace minfer
