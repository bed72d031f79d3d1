#pragma once

#include <string>
#include <string_view>

#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answers {

/// The syntax of a LooseValue, beyond the common part of Python and JSON.
struct LooseSyntax {
  std::string_view quote = {};  ///< also quotes texts; these have no escapes
  bool bare_words = false;      ///< keys and texts may lack quotes
};

/// Reads a value byte by byte, in Python's or FunctionGemma's syntax, and converts it to JSON: None becomes
/// null, tuples lists, 'texts' "texts". A text goes out as it comes.
class LooseValue {
 public:
  explicit LooseValue(const LooseSyntax& syntax = {}) : syntax_(syntax), marker_({syntax.quote}) {}
  /// `text`: JSON is appended.
  ReadStep push(char c, std::string& text) { return (this->*state_)(c, text); }

 private:
  using State = ReadStep (LooseValue::*)(char c, std::string& text);

  // The states. Each takes the next byte.
  ReadStep value(char c, std::string& text);
  ReadStep quote_marker(char c, std::string& text);
  ReadStep string(char c, std::string& text);
  ReadStep marked_string(char c, std::string& text);
  ReadStep escape(char c, std::string& text);
  ReadStep code_point(char c, std::string& text);
  ReadStep word(char c, std::string& text);
  ReadStep colon(char c, std::string& text);
  ReadStep after_value(char c, std::string& text);

  ReadStep open(char bracket, std::string& text);
  ReadStep close(char bracket, std::string& text);
  ReadStep end_value();
  void begin_element(std::string& text);
  bool expects_key() const { return !open_.empty() && open_.back() == '{' && !has_key_; }

  LooseSyntax syntax_;
  State state_ = &LooseValue::value;
  MarkerFinder marker_;         ///< the quote
  std::string open_;            ///< open brackets; '(' is also a list
  std::string word_;            ///< a number, a constant or a bare word
  char quote_ = '"';            ///< of the current string
  bool has_key_ = false;        ///< the value under way is a key's
  bool has_elements_ = false;   ///< the next element needs a comma in front
  uint32_t code_point_ = 0;     ///< of an escape
  int32_t num_hex_digits_ = 0;  ///< of it that are missing
};

/// A Python constant or a number as JSON; empty: the word is neither.
std::string json_of_word(std::string_view word);

/// Converts a parameter's value between tags to JSON. The value is a text, unless it reads as JSON of another type that the parameter may
/// have. A certain text goes out as it comes, any other value at its end.
class TaggedValue {
 public:
  /// `has_line_ends`: a line end in front of the value and one behind it do not belong to the value.
  explicit TaggedValue(JsonTypes types = kAnyType, bool has_line_ends = false)
      : types_(types), has_line_ends_(has_line_ends), is_text_(types == kString) {}

  /// `text`: JSON is appended.
  void push(char c, std::string& text);
  void finish(std::string& text);

 private:
  void take(char c, std::string& text);
  void begin_text(std::string& text);
  bool allows(JsonTypes type) const { return types_ == kAnyType || (types_ & type) != 0; }

  JsonTypes types_;
  bool has_line_ends_;
  bool is_text_;
  bool has_quote_ = false;     ///< the text has begun
  bool is_first_ = true;       ///< no byte yet
  bool has_begun_ = false;     ///< a byte other than white space has come
  bool has_line_end_ = false;  ///< held back: it may be the last byte
  std::string undecided_;      ///< may still become something other than a text
};

}  // namespace minfer::answers
