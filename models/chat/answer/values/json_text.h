#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace minfer::answer {

/// What a byte did to a value that is being read.
enum class ReadStep : uint8_t {
  more,    ///< the value goes on
  done,    ///< the byte ended it
  ended,   ///< it ended before the byte, which is to be read as something else (after a number)
  failed,  ///< the byte cannot stand here
};

/// Nesting that values of calls may have.
inline constexpr size_t kMaxJsonDepth = 200;

/// Reads one JSON value (RFC 8259) that comes byte by byte and knows where it ends. What it gives is always JSON: the bytes as they were
/// written, but for control characters within strings, which models do write (a line end of a program's text) and which come out escaped.
class JsonScanner {
 public:
  /// `text`: bytes of the value are appended. White space in front of it is dropped.
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
  std::string open_;            ///< brackets that wait for their end
  std::string_view literal_;    ///< what is missing of true, false or null
  int32_t num_hex_digits_ = 0;  ///< that are missing
  bool is_key_ = false;         ///< the string under way is a key
};

/// `text` if it is one JSON value, as JsonScanner gives it; else empty. White space around it is allowed.
std::string json_value(std::string_view text);

/// Appends a byte of a text as it stands within a JSON string.
void append_json_escaped(char c, std::string& text);

/// Undoes the escapes of a JSON string that comes byte by byte, from behind its opening quote.
class JsonStringDecoder {
 public:
  /// `text`: the decoded bytes are appended. Never `ended`. Control characters are taken as they are; halves of surrogate pairs become
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

/// Reads the value of a call's "arguments": an object; or a string that holds one, as some models write it; null, which stands for {}.
class JsonArguments {
 public:
  /// `text`: bytes of the object are appended. Never `ended`.
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

}  // namespace minfer::answer
