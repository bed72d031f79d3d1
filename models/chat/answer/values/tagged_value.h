#pragma once

#include <string>

#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/tool_types.h"

namespace minfer::answer {

/// Makes JSON of a parameter's value that stands between tags. It is a text, unless it reads as JSON of another type that the parameter may
/// have. What is certainly a text goes out as it comes, the rest at its end.
class TaggedValue {
 public:
  /// `has_line_ends`: one in front of the value and one behind it do not belong to it.
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
  bool has_begun_ = false;     ///< a byte that is no white space has come
  bool has_line_end_ = false;  ///< held back: it may be the last byte
  std::string undecided_;      ///< may still become something else than a text
};

}  // namespace minfer::answer
