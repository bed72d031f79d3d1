#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/grammar/text_reader.h"

namespace minfer {

/// A place in the text of a Lark grammar. Reads the parts below the structure of rules: names, counts, strings.
class LarkText : public TextReader {
 public:
  explicit LarkText(std::string_view text) : TextReader("Lark", text, "//") {}

  static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  [[noreturn]] void refuse_found(std::string_view expected) const;
  void enter(size_t begin, size_t end);
  std::string take_name();
  int64_t take_repetitions();
  std::vector<char32_t> take_characters();

 private:
  std::string found() const;
  char32_t take_escape();
};

/// The regular expression of a terminal that Lark grammars import from `common`; empty: the name is unknown.
std::string_view common_terminal(std::string_view name);

}  // namespace minfer
