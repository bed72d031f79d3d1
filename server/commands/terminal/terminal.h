#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace minfer {

/// Whether a stream is a terminal: colours and progress lines go nowhere else.
bool is_terminal(std::FILE* stream);

/// Writes to standard output. Throws Error if that does not take all of it, now or at any time before.
void print_output(std::string_view text);

/// Writes a line or two to standard error; what it does not take (closed, disk full, a pipe that nobody
/// reads) is lost.
void print_notice(const std::string& text);

}  // namespace minfer
