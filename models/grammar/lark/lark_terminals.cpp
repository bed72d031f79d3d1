#include "models/grammar/lark/lark_terminals.h"

#include <unordered_map>

namespace minfer {

std::string_view common_terminal(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> known{
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9A-Fa-f]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+-]?[0-9]+"},
      {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
      {"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"SIGNED_FLOAT", R"([+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?))"},
      {"NUMBER", R"(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"SIGNED_NUMBER", R"([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"ESCAPED_STRING", R"("([^"\\\n]|\\[^\n])*")"},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[A-Za-z]"},
      {"WORD", "[A-Za-z]+"},
      {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
      {"WS_INLINE", R"([ \t]+)"},
      {"WS", R"([ \t\f\r\n]+)"},
      {"CR", R"(\r)"},
      {"LF", R"(\n)"},
      {"NEWLINE", R"((\r?\n)+)"},
      {"SH_COMMENT", R"(#[^\n]*)"},
      {"CPP_COMMENT", R"(//[^\n]*)"},
      {"C_COMMENT", R"(/\*([^*]|\*+[^*/])*\*+/)"},
      {"SQL_COMMENT", R"(--[^\n]*)"},
  };
  const auto found = known.find(name);
  return found == known.end() ? std::string_view() : found->second;
}

}  // namespace minfer
