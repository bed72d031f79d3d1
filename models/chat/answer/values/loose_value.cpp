#include "models/chat/answer/values/loose_value.h"

#include "models/chat/jinja/value/unicode.h"

namespace minfer::answers {
namespace {

constexpr size_t kMaxWordBytes = 1000;

bool is_word_byte(char c) {
  return is_name_byte(c) || c == '+';
}

int32_t digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

}  // namespace

std::string json_of_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  return json_value(word);
}

ReadStep LooseValue::quote_marker(char c, std::string& /*text*/) {
  const std::string before = marker_.held();
  if (!syntax_.quote.starts_with(before + c)) return ReadStep::failed;
  if (std::string none; marker_.push(c, none) >= 0) state_ = &LooseValue::marked_string;
  return ReadStep::more;
}

ReadStep LooseValue::colon(char c, std::string& text) {
  if (is_space(c)) return ReadStep::more;
  if (c != ':') return ReadStep::failed;
  text += ": ";
  has_key_ = true;
  state_ = &LooseValue::value;
  return ReadStep::more;
}

void LooseValue::begin_element(std::string& text) {
  if (has_elements_ && !has_key_) text += ", ";
}

ReadStep LooseValue::value(char c, std::string& text) {
  if (is_space(c)) return ReadStep::more;
  if (!open_.empty() && !has_key_ && (c == ']' || c == ')' || c == '}')) return close(c, text);
  if (c == '[' || c == '(' || c == '{') return open(c, text);
  begin_element(text);
  if (c == '"' || c == '\'') {
    text += '"';
    quote_ = c;
    state_ = &LooseValue::string;
  } else if (!syntax_.quote.empty() && c == syntax_.quote.front()) {
    text += '"';
    state_ = &LooseValue::quote_marker;
    return push(c, text);
  } else if (is_word_byte(c)) {
    word_ = c;
    state_ = &LooseValue::word;
  } else {
    return ReadStep::failed;
  }
  return ReadStep::more;
}

ReadStep LooseValue::code_point(char c, std::string& text) {
  const int32_t digit = digit_of(c);
  if (digit < 0) return ReadStep::failed;
  code_point_ = code_point_ * 16 + static_cast<uint32_t>(digit);
  if (--num_hex_digits_ > 0) return ReadStep::more;
  const bool is_character = code_point_ < 0x110000 && (code_point_ < 0xd800 || code_point_ > 0xdfff);
  if (code_point_ < 0x80) append_json_escaped(static_cast<char>(code_point_), text);
  if (code_point_ >= 0x80)
    jinja::append_utf8(text, is_character ? static_cast<char32_t>(code_point_) : U'\ufffd');
  state_ = &LooseValue::string;
  return ReadStep::more;
}

ReadStep LooseValue::marked_string(char c, std::string& text) {
  std::string passed;
  const bool is_end = marker_.push(c, passed) >= 0;
  for (const char p : passed)
    append_json_escaped(p, text);
  if (!is_end) return ReadStep::more;
  text += '"';
  return end_value();
}

ReadStep LooseValue::string(char c, std::string& text) {
  if (c == quote_) {
    text += '"';
    return end_value();
  }
  if (c == '\\') {
    state_ = &LooseValue::escape;
  } else {
    append_json_escaped(c, text);
  }
  return ReadStep::more;
}

/// A backslash in front of what Python has no escape for stays.
ReadStep LooseValue::escape(char c, std::string& text) {
  constexpr std::string_view kNames = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  state_ = &LooseValue::string;
  if (c == 'x' || c == 'u' || c == 'U') {
    num_hex_digits_ = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    code_point_ = 0;
    state_ = &LooseValue::code_point;
  } else if (const size_t i = kNames.find(c); i != std::string_view::npos) {
    append_json_escaped(kMeanings[i], text);
  } else if (c != '\n') {
    text += "\\\\";
    append_json_escaped(c, text);
  }
  return ReadStep::more;
}

ReadStep LooseValue::word(char c, std::string& text) {
  if (is_word_byte(c)) {
    word_ += c;
    return word_.size() <= kMaxWordBytes ? ReadStep::more : ReadStep::failed;
  }
  std::string json = expects_key() ? std::string() : json_of_word(word_);
  if (json.empty()) {
    if (!syntax_.bare_words) return ReadStep::failed;
    json = '"' + word_ + '"';
  }
  text += json;
  return end_value() == ReadStep::done ? ReadStep::ended : push(c, text);
}

ReadStep LooseValue::after_value(char c, std::string& text) {
  if (is_space(c)) return ReadStep::more;
  if (c == ']' || c == ')' || c == '}') return close(c, text);
  if (c != ',') return ReadStep::failed;
  state_ = &LooseValue::value;
  return ReadStep::more;
}

ReadStep LooseValue::open(char bracket, std::string& text) {
  if (open_.size() == kMaxJsonDepth || expects_key()) return ReadStep::failed;
  begin_element(text);
  open_ += bracket;
  text += bracket == '{' ? '{' : '[';
  has_elements_ = has_key_ = false;
  state_ = &LooseValue::value;
  return ReadStep::more;
}

ReadStep LooseValue::close(char bracket, std::string& text) {
  const char opening = bracket == ']' ? '[' : bracket == ')' ? '(' : '{';
  if (open_.back() != opening) return ReadStep::failed;
  open_.pop_back();
  text += bracket == '}' ? '}' : ']';
  // The closed list or object was a value and not a key.
  has_key_ = !open_.empty() && open_.back() == '{';
  return end_value();
}

ReadStep LooseValue::end_value() {
  if (open_.empty()) return ReadStep::done;
  if (expects_key()) {
    state_ = &LooseValue::colon;
    return ReadStep::more;
  }
  has_key_ = false;
  has_elements_ = true;
  state_ = &LooseValue::after_value;
  return ReadStep::more;
}

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

}  // namespace minfer::answers
