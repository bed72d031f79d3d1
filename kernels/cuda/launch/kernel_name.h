#pragma once

#include <string>

namespace minfer::cuda {

/// The name of a kernel as in its source, from the symbol that the driver knows. Template arguments stay; the
/// result type, the parameters and this project's namespaces go. A symbol that is not a C++ name stays as it is.
std::string kernel_name(const char* symbol);

}  // namespace minfer::cuda
