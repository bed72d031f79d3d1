#pragma once

#include <string>

#include "profiling/json/json_text.h"
#include "profiling/json/profile_header.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Append a line of JSON (schema minfer.step/2, see step.schema.json), newline included. Times have three
/// decimals, that is nanoseconds; bytes that are no UTF-8 become U+FFFD.
void append_header_line(std::string& out, const ProfileHeader& header);
/// What `index` in the steps' launches stands for (schema minfer.launch/1).
void append_launch_line(std::string& out, int32_t index, const KernelLaunch& launch);
/// What the device's memory was used for when the profile ended (schema minfer.memory/1).
void append_memory_line(std::string& out, const MemoryUse& memory, int64_t clock_ns);
void append_step_line(std::string& out, const StepSummary& step);

/// The same as values within a larger document: the header line's `header`, and what the lines of a step and a launch are.
void write_header(JsonText& json, const ProfileHeader& header);
void write_step(JsonText& json, const StepSummary& step);
void write_launch(JsonText& json, int32_t index, const KernelLaunch& launch);

}  // namespace minfer
