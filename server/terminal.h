#pragma once

#include <cstdio>

namespace minfer {

/// Whether a stream is a terminal: colours and progress lines go nowhere else.
bool is_terminal(std::FILE* stream);

}  // namespace minfer
