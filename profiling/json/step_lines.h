#pragma once

#include "profiling/json/json_field.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Reads the line of a step into `step`, whatever that held before, in the memory it has. `num_launches`: of which lines came
/// before. Throws FileError, naming the field.
void read_step(const JsonField& line, int32_t num_launches, StepSummary& step);

}  // namespace minfer
