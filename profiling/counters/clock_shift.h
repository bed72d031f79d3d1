#pragma once

#include <cstdint>
#include <span>

#include "profiling/counters/sample_attribution.h"

namespace minfer {

/// The shift of the samples, within `most_ns` either way, that best aligns the changes of a column with
/// the bounds of ops (least squares over samples, against each op's mean). It is the offset between
/// two clocks, if ops read only while they run. Precise to some 1/20 of a sample if ops read at different speeds. 0 if
/// nothing changes. `most_ns` must be less than half the period of the ops, e.g. of a layer.
int64_t clock_shift_ns(const CounterSamples& samples, size_t column, std::span<const StepSpans> steps,
                       int64_t most_ns);

}  // namespace minfer
