#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minfer::answers {

/// The effect of a byte on the value that is being read.
enum class ReadStep : uint8_t {
  more,    ///< the value goes on
  done,    ///< the byte ended the value
  ended,   ///< the value ended before the byte, which belongs to the next item (after a number)
  failed,  ///< the byte is invalid here
};

/// The deepest nesting of values in calls.
inline constexpr size_t kMaxJsonDepth = 200;

/// Reads one JSON value (RFC 8259) byte by byte, and finds its end. The output is always JSON: the bytes as written,
/// except that control characters within strings come out escaped; models do write these (a line end of a program's text).
class JsonScanner {
 public:
  /// Appends bytes of the value to `text`. Drops white space in front of the value.
  ReadStep push(char c, std::string& text);

 private:
  enum class State : uint8_t {
    value,
    first_element,
    first_key,
    key,
    colon,
    after_value,
    string,
    escape,
    hex,
    literal,
    minus,
    zero,
    digits,
    point,
    fraction,
    exponent,
    exponent_sign,
    exponent_digits
  };

  ReadStep push_value(char c, std::string& text);
  ReadStep push_after_value(char c, std::string& text);
  ReadStep push_string(char c, std::string& text);
  ReadStep push_number(char c, std::string& text);
  ReadStep open(char bracket, State next, std::string& text);
  ReadStep close(char bracket, std::string& text);
  ReadStep end_value();

  State state_ = State::value;
  std::string open_;            ///< open brackets
  std::string_view literal_;    ///< the missing rest of true, false or null
  int32_t num_hex_digits_ = 0;  ///< that are missing
  bool is_key_ = false;         ///< the current string is a key
};

/// Returns `text` as JsonScanner gives it if it is one JSON value; else empty. White space around the value is allowed.
std::string json_value(std::string_view text);

/// Appends a byte of a text, escaped for a JSON string.
void append_json_escaped(char c, std::string& text);

/// Decodes the escapes of a JSON string byte by byte, from behind its opening quote.
class JsonStringDecoder {
 public:
  /// Appends the decoded bytes to `text`. Never returns `ended`. Control characters are taken unchanged; halves of surrogate pairs become
  /// U+FFFD.
  ReadStep push(char c, std::string& text);

 private:
  ReadStep push_escape(char c, std::string& text);
  void take_code_unit(std::string& text);
  void drop_half_pair(std::string& text);

  bool in_escape_ = false;
  int32_t num_hex_digits_ = 0;  ///< that are missing
  uint32_t code_unit_ = 0;
  uint32_t high_surrogate_ = 0;  ///< waits for its low half; 0: none
};

/// Reads the value of a call's "arguments": an object; a string that holds an object, as some models write it; or null, which means {}.
class JsonArguments {
 public:
  /// Appends bytes of the object to `text`. Never returns `ended`.
  ReadStep push(char c, std::string& text);

 private:
  enum class Form : uint8_t { unknown, object, string, null };

  ReadStep push_string(char c, std::string& text);

  Form form_ = Form::unknown;
  JsonScanner scanner_;
  JsonStringDecoder decoder_;
  bool is_whole_ = false;  ///< the object within a string
  bool has_begun_ = false;
};

}  // namespace minfer::answers
