#pragma once

#include <string>

#include "profiling/json/json_text.h"
#include "profiling/json/profile_header.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Append a line of JSON (schema minfer.step/1, see step.schema.json), newline included. Times have three
/// decimals, that is nanoseconds; bytes that are no UTF-8 become U+FFFD.
void append_header_line(std::string& out, const ProfileHeader& header);
void append_step_line(std::string& out, const StepSummary& step);

/// The same as values within a larger document: the header line's `header`, and what a step's line is.
void write_header(JsonText& json, const ProfileHeader& header);
void write_step(JsonText& json, const StepSummary& step);

}  // namespace minfer
