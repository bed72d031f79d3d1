#include "models/chat/answer/values/tagged_value.h"

#include <string_view>

#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/loose_value.h"

namespace minfer::answer {

void TaggedValue::push(char c, std::string& text) {
  const bool was_first = is_first_;
  is_first_ = false;
  if (has_line_ends_ && c == '\n') {
    if (was_first) return;
    if (has_line_end_) take('\n', text);
    has_line_end_ = true;
    return;
  }
  if (has_line_end_) take('\n', text);
  has_line_end_ = false;
  take(c, text);
}

void TaggedValue::take(char c, std::string& text) {
  if (is_text_) {
    if (!has_quote_) begin_text(text);
    append_json_escaped(c, text);
    return;
  }
  undecided_ += c;
  if (is_space(c) || has_begun_) return;
  has_begun_ = true;
  if (std::string_view("{[-0123456789tfnTFN").find(c) == std::string_view::npos) begin_text(text);
}

void TaggedValue::begin_text(std::string& text) {
  is_text_ = has_quote_ = true;
  text += '"';
  for (const char u : undecided_)
    append_json_escaped(u, text);
  undecided_.clear();
}

void TaggedValue::finish(std::string& text) {
  if (!is_text_) {
    // Python's constants only where the schema says that one is meant: elsewhere they are words.
    const std::string json = types_ == kAnyType ? json_value(undecided_) : json_of_word(trimmed(undecided_));
    if (!json.empty() && allows(type_of_json(json.front()))) {
      text += json;
      return;
    }
  }
  if (!has_quote_) begin_text(text);
  text += '"';
}

}  // namespace minfer::answer
