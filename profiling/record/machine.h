#pragma once

#include <cstddef>
#include <string>

namespace minfer {

/// The processor's name as the system gives it, e.g. "AMD EPYC 9554 64-Core Processor"; "unknown" if it does not say.
std::string processor_name();

/// The memory that can be allocated without swapping and within the control group's limit; 0 if the system does not say.
size_t available_memory_bytes();

}  // namespace minfer
