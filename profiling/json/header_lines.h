#pragma once

#include <string>

#include "kernels/launches.h"
#include "profiling/json/json_field.h"
#include "profiling/json/json_text.h"
#include "profiling/json/profile_header.h"

namespace minfer {

// The lines that a profile has once: its header, kinds of launches, memory.

/// Append a line of JSON (see step.schema.json), including the newline. Schemas: minfer.step/2; minfer.launch/1, for the launch with
/// number `index` in the steps' launches; minfer.memory/1, for the use of the device's memory when the profile ended.
void append_header_line(std::string& out, const ProfileHeader& header);
void append_launch_line(std::string& out, int32_t index, const KernelLaunch& launch);
void append_memory_line(std::string& out, const MemoryUse& memory, int64_t clock_ns);

/// The same as values within a larger document: the `header` of the header line, and the object of a launch's line.
void write_header(JsonText& json, const ProfileHeader& header);
void write_launch(JsonText& json, int32_t index, const KernelLaunch& launch);

/// Read the lines that those append. Throw FileError, naming the field.
ProfileHeader header_of(const JsonField& field);
KernelLaunch launch_of(const JsonField& line);
MemoryUse memory_of(const JsonField& field);

}  // namespace minfer
