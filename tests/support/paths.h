#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// A file of the source tree by its path from the root, e.g. "tests/golden/mistral.gguf". The tree is the folder that the
/// environment variable MINFER_SOURCE_DIR names, else the tree that the tests were built from.
std::string source_path(std::string_view path);

/// A model for open_model(): tests/golden/NAME.gguf, or a synthetic one by its whole name.
std::string test_model(const std::string& name);

/// The program, which is beside the test's executable.
std::string minfer_binary();

}  // namespace minfer
