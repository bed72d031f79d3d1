#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/grammar/code_points.h"
#include "models/grammar/text_reader.h"

namespace minfer {

struct RegexFlags {
  bool ignores_case = false;  ///< of ASCII letters; then other letters and \p are refused
  bool dot_is_any = false;    ///< '.' also matches line ends
};

/// Reads the parts of a regular expression that are below its structure: characters, escapes, classes, counts. Throws GrammarError with
/// the place, counted in bytes from 0.
class RegexReader : public TextReader {
 public:
  explicit RegexReader(std::string_view pattern, const RegexFlags& flags = {})
      : TextReader("regular expression", pattern), flags_(flags) {}

  /// A character, '.', an escape or a class: one code point of the result.
  CodePoints take_character();
  struct Count {
    int64_t min;
    int64_t max;  ///< -1: unbounded
  };
  /// A quantifier, if one is next; lazy quantifiers describe the same texts. A brace that begins no quantifier is a character.
  std::optional<Count> take_quantifier();
  /// The name of a named group, behind "(?<".
  void skip_group_name();

 private:
  std::string place() const override;
  char32_t take_pattern_character();
  CodePoints single(char32_t c) const;
  CodePoints take_escape(bool in_class);
  CodePoints take_class();
  CodePoints take_property();
  char32_t take_digits(int digits);
  char32_t take_unicode_escape();
  std::optional<Count> take_braces();

  RegexFlags flags_;
};

}  // namespace minfer
