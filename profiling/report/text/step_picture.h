#pragma once

#include <string>

#include "profiling/json/profile_header.h"
#include "profiling/report/summary.h"

namespace minfer {

/// One step for a terminal, at most kTextColumns wide: what was in the batch, how its wall time divides, and a bar
/// for each op, longest first. `colour` tells the phases apart by ANSI colours as well as by name.
std::string render_step(const StepSummary& step, const ProfileHeader& header, bool colour);

}  // namespace minfer
