#pragma once

#include <cstdint>
#include <span>

#include "profiling/counters/sample_attribution.h"

namespace minfer {

/// By how much samples have to be moved, within `most_ns` either way, for the changes of a column to fall on
/// the bounds of ops best (least squares over samples, against what each op holds on average): the distance of
/// two clocks, if ops read only while they run. Precise to some 1/20 of a sample where ops read at different speeds. 0 if
/// nothing changes. `most_ns` is to be less than half the time after which ops repeat, a layer's say.
int64_t clock_shift_ns(const CounterSamples& samples, size_t column, std::span<const StepSpans> steps,
                       int64_t most_ns);

}  // namespace minfer
