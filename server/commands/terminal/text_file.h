#pragma once

#include <string>

namespace minfer {

/// All of a file's bytes. Throws FileError naming it.
std::string read_text_file(const std::string& path);

}  // namespace minfer
