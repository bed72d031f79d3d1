#pragma once

#include <string>

namespace minfer::cuda {

/// The name of a kernel as its source has it, from the symbol that the driver knows: template arguments stay; the result type, the
/// parameters and this project's namespaces go. A symbol that is no C++ name stays as it is.
std::string kernel_name(const char* symbol);

}  // namespace minfer::cuda
