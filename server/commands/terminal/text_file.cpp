#include "server/commands/terminal/text_file.h"

#include <fstream>
#include <iterator>

#include "kernels/error.h"

namespace minfer {

std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.is_open() || file.bad()) fail<FileError>("cannot read {}", path);
  return text;
}

}  // namespace minfer
