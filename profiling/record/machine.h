#pragma once

#include <cstddef>
#include <string>

namespace minfer {

/// The processor's name as the system gives it, e.g. "AMD EPYC 9554 64-Core Processor"; "unknown" if it does not say.
std::string processor_name();

/// Memory that can be taken without swapping or running into the limit of a control group; 0 if the system does not say.
size_t available_memory_bytes();

}  // namespace minfer
