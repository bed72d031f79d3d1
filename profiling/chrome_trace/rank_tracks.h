#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "profiling/chrome_trace/tracks.h"
#include "profiling/counters/counter_window.h"
#include "profiling/record/rank_step.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// Writes what steps took on each of several ranks, a process a rank: the step, and within it computing, waiting for the other ranks
/// and moving bytes, each summed over the step's ops and laid end to end. `is_shown`: of a step's number. Nothing begins before
/// `least_ns`.
void write_ranks(TraceEvents& events, Tracks& tracks, std::span<const RankStep> steps, int64_t least_ns,
                 const std::function<bool(int64_t step)>& is_shown);

/// Writes the kernels, copies and fills of ranks other than the first, each in the time that nothing ran that had begun before it.
void write_rank_kernels(TraceEvents& events, Tracks& tracks, std::span<const KernelLine> kernels,
                        int64_t least_ns, const std::function<bool(int64_t step)>& is_shown);

/// Writes what hardware counters measured of steps on each of several ranks, as curves of the rank's process over the step's time there:
/// bytes of memory, and bytes that NVLink brought and took. Steps of which `steps` does not say when the rank began are left out.
/// Nothing where the first rank's counters alone were read: those are the device's.
void write_rank_counters(TraceEvents& events, Tracks& tracks, std::span<const CounterWindow> windows,
                         std::span<const RankStep> steps, int64_t least_ns,
                         const std::function<bool(int64_t step)>& is_shown);

}  // namespace minfer
