#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// A file of the source tree by its path from the root, e.g. "tests/golden/mistral.gguf". The tree is the one that the tests
/// were built from, or the folder that the environment variable MINFER_SOURCE_DIR names.
std::string source_path(std::string_view path);

/// The program, which stands beside the test's executable.
std::string minfer_binary();

}  // namespace minfer
