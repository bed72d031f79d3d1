#include "models/tokenizer/escaped_spaces.h"

namespace minfer {

std::string escape_spaces(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size() * 2);
  for (const char c : text) {
    if (c == ' ') {
      escaped += kEscapedSpace;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string unescape_spaces(std::string_view text) {
  std::string unescaped;
  size_t begin = 0;
  while (true) {
    const size_t found = text.find(kEscapedSpace, begin);
    unescaped += text.substr(begin, found - begin);
    if (found == std::string_view::npos) return unescaped;
    unescaped += ' ';
    begin = found + kEscapedSpace.size();
  }
}

}  // namespace minfer
