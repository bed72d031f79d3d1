#pragma once

#include <cstddef>

namespace minfer {

/// Lets this process open as many files and sockets as the system allows: thousands of connections need more
/// than many systems allow at first. Returns how many that are; 0: not known.
size_t raise_descriptor_limit();

}  // namespace minfer
