#pragma once

#include "kernels/launches.h"
#include "profiling/json/json_field.h"
#include "profiling/json/profile_header.h"

namespace minfer {

/// Read what a profile says once: its header, kinds of launches, memory. Throw FileError, naming the field.
ProfileHeader header_of(const JsonField& field);
KernelLaunch launch_of(const JsonField& line);
MemoryUse memory_of(const JsonField& field);

}  // namespace minfer
