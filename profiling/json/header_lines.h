#pragma once

#include <string>

#include "kernels/launches.h"
#include "profiling/json/json_field.h"
#include "profiling/json/json_text.h"
#include "profiling/json/profile_header.h"

namespace minfer {

// What a profile says once: its header, kinds of launches, memory.

/// Append a line of JSON (see step.schema.json), newline included: schemas minfer.step/2, minfer.launch/1, for what `index` in the steps'
/// launches stands for, and minfer.memory/1, for what the device's memory was used for when the profile ended.
void append_header_line(std::string& out, const ProfileHeader& header);
void append_launch_line(std::string& out, int32_t index, const KernelLaunch& launch);
void append_memory_line(std::string& out, const MemoryUse& memory, int64_t clock_ns);

/// The same as values within a larger document: the header line's `header`, and what the line of a launch is.
void write_header(JsonText& json, const ProfileHeader& header);
void write_launch(JsonText& json, int32_t index, const KernelLaunch& launch);

/// Read what those append. Throw FileError, naming the field.
ProfileHeader header_of(const JsonField& field);
KernelLaunch launch_of(const JsonField& line);
MemoryUse memory_of(const JsonField& field);

}  // namespace minfer
