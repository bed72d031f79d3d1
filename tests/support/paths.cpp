#include "tests/support/paths.h"

#include <cstdlib>
#include <filesystem>

namespace minfer {

std::string source_path(std::string_view path) {
  const char* moved = std::getenv("MINFER_SOURCE_DIR");
  return (std::filesystem::path(moved != nullptr ? moved : MINFER_SOURCE_DIR) / path).string();
}

std::string test_model(const std::string& name) {
  return name.starts_with("synthetic:") ? name : source_path("tests/golden/" + name + ".gguf");
}

std::string minfer_binary() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "minfer").string();
}

}  // namespace minfer
