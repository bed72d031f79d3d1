#include "models/chat/answer/values/json_text.h"

#include <fmt/format.h>

#include "models/chat/answer/values/literals.h"
#include "models/chat/jinja/value/unicode.h"

namespace minfer::answers {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

int32_t hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

ReadStep JsonScanner::push(char c, std::string& text) {
  switch (state_) {
    case State::string:
    case State::escape:
    case State::hex:
      return push_string(c, text);
    case State::literal:
      if (c != literal_.front()) return ReadStep::failed;
      literal_.remove_prefix(1);
      text += c;
      return literal_.empty() ? end_value() : ReadStep::more;
    case State::value:
    case State::first_element:
    case State::first_key:
    case State::key:
    case State::colon:
    case State::after_value:
      if (!is_space(c)) return state_ == State::after_value ? push_after_value(c, text) : push_value(c, text);
      if (!open_.empty()) text += c;
      return ReadStep::more;
    default:
      return push_number(c, text);
  }
}

ReadStep JsonScanner::push_value(char c, std::string& text) {
  if (state_ == State::first_element && c == ']') return close('[', text);
  if (state_ == State::first_key && c == '}') return close('{', text);
  if (state_ == State::colon && c != ':') return ReadStep::failed;
  is_key_ = state_ == State::first_key || state_ == State::key;
  if (is_key_ && c != '"') return ReadStep::failed;
  if (c == '{') return open(c, State::first_key, text);
  if (c == '[') return open(c, State::first_element, text);

  if (c == ':' && state_ == State::colon) {
    state_ = State::value;
  } else if (c == '"') {
    state_ = State::string;
  } else if (c == '-') {
    state_ = State::minus;
  } else if (c == '0') {
    state_ = State::zero;
  } else if (is_digit(c)) {
    state_ = State::digits;
  } else if (c == 't' || c == 'f' || c == 'n') {
    state_ = State::literal;
    literal_ = c == 't' ? "rue" : c == 'f' ? "alse" : "ull";
  } else {
    return ReadStep::failed;
  }
  text += c;
  return ReadStep::more;
}

ReadStep JsonScanner::push_after_value(char c, std::string& text) {
  if (c == '}') return close('{', text);
  if (c == ']') return close('[', text);
  if (c != ',') return ReadStep::failed;
  text += c;
  state_ = open_.back() == '{' ? State::key : State::value;
  return ReadStep::more;
}

ReadStep JsonScanner::push_string(char c, std::string& text) {
  if (state_ == State::hex) {
    if (hex_value(c) < 0) return ReadStep::failed;
    text += c;
    if (--num_hex_digits_ == 0) state_ = State::string;
  } else if (state_ == State::escape) {
    if (std::string_view("\"\\/bfnrtu").find(c) == std::string_view::npos) return ReadStep::failed;
    text += c;
    num_hex_digits_ = 4;
    state_ = c == 'u' ? State::hex : State::string;
  } else if (c == '"') {
    text += c;
    return end_value();
  } else if (c == '\\') {
    text += c;
    state_ = State::escape;
  } else {
    append_json_escaped(c, text);
  }
  return ReadStep::more;
}

ReadStep JsonScanner::push_number(char c, std::string& text) {
  const auto go_to = [&](State state) {
    text += c;
    state_ = state;
    return ReadStep::more;
  };
  const bool may_end = state_ == State::zero || state_ == State::digits || state_ == State::fraction ||
                       state_ == State::exponent_digits;
  if (is_digit(c) && state_ != State::zero) {
    if (state_ == State::minus) return go_to(c == '0' ? State::zero : State::digits);
    if (state_ == State::point) return go_to(State::fraction);
    if (state_ == State::exponent || state_ == State::exponent_sign) return go_to(State::exponent_digits);
    return go_to(state_);
  }
  if (c == '.' && (state_ == State::zero || state_ == State::digits)) return go_to(State::point);
  if ((c == 'e' || c == 'E') && may_end && state_ != State::exponent_digits) return go_to(State::exponent);
  if ((c == '+' || c == '-') && state_ == State::exponent) return go_to(State::exponent_sign);
  if (!may_end || is_name_byte(c)) return ReadStep::failed;
  return end_value() == ReadStep::done ? ReadStep::ended : push(c, text);
}

ReadStep JsonScanner::open(char bracket, State next, std::string& text) {
  if (open_.size() == kMaxJsonDepth) return ReadStep::failed;
  open_ += bracket;
  text += bracket;
  state_ = next;
  return ReadStep::more;
}

ReadStep JsonScanner::close(char bracket, std::string& text) {
  if (open_.back() != bracket) return ReadStep::failed;
  open_.pop_back();
  text += bracket == '{' ? '}' : ']';
  is_key_ = false;
  return end_value();
}

ReadStep JsonScanner::end_value() {
  state_ = is_key_ ? State::colon : State::after_value;
  is_key_ = false;
  return open_.empty() ? ReadStep::done : ReadStep::more;
}

std::string json_value(std::string_view text) {
  JsonScanner scanner;
  std::string value;
  bool is_whole = false;
  for (const char c : text) {
    if (is_whole && is_space(c)) continue;
    if (is_whole) return {};
    const ReadStep step = scanner.push(c, value);
    if (step == ReadStep::failed || (step == ReadStep::ended && !is_space(c))) return {};
    is_whole = step != ReadStep::more;
  }
  // A number ends where the next byte is none of it.
  return is_whole || scanner.push(' ', value) == ReadStep::ended ? value : std::string();
}

void append_json_escaped(char c, std::string& text) {
  if (c == '"' || c == '\\') {
    text += '\\';
    text += c;
  } else if (c == '\n') {
    text += "\\n";
  } else if (c == '\t') {
    text += "\\t";
  } else if (c == '\r') {
    text += "\\r";
  } else if (static_cast<unsigned char>(c) < 0x20) {
    text += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
  } else {
    text += c;
  }
}

ReadStep JsonStringDecoder::push(char c, std::string& text) {
  if (num_hex_digits_ > 0) {
    const int32_t digit = hex_value(c);
    if (digit < 0) return ReadStep::failed;
    code_unit_ = code_unit_ * 16 + static_cast<uint32_t>(digit);
    if (--num_hex_digits_ == 0) take_code_unit(text);
    return ReadStep::more;
  }
  if (in_escape_) return push_escape(c, text);
  if (c == '\\') {
    in_escape_ = true;
    return ReadStep::more;
  }
  drop_half_pair(text);
  if (c == '"') return ReadStep::done;
  text += c;
  return ReadStep::more;
}

ReadStep JsonStringDecoder::push_escape(char c, std::string& text) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  in_escape_ = false;
  if (c == 'u') {
    num_hex_digits_ = 4;
    code_unit_ = 0;
    return ReadStep::more;
  }
  const size_t i = kNames.find(c);
  if (i == std::string_view::npos) return ReadStep::failed;
  drop_half_pair(text);
  text += kMeanings[i];
  return ReadStep::more;
}

void JsonStringDecoder::take_code_unit(std::string& text) {
  const bool is_high = code_unit_ >= 0xd800 && code_unit_ < 0xdc00;
  const bool is_low = code_unit_ >= 0xdc00 && code_unit_ < 0xe000;
  if (is_low && high_surrogate_ != 0) {
    jinja::append_utf8(
        text, static_cast<char32_t>(0x10000 + ((high_surrogate_ - 0xd800) << 10) + (code_unit_ - 0xdc00)));
    high_surrogate_ = 0;
    return;
  }
  drop_half_pair(text);
  if (is_high) {
    high_surrogate_ = code_unit_;
  } else {
    jinja::append_utf8(text, is_low ? U'\ufffd' : static_cast<char32_t>(code_unit_));
  }
}

void JsonStringDecoder::drop_half_pair(std::string& text) {
  if (high_surrogate_ != 0) jinja::append_utf8(text, U'\ufffd');
  high_surrogate_ = 0;
}

ReadStep JsonArguments::push(char c, std::string& text) {
  if (form_ == Form::unknown) {
    if (is_space(c)) return ReadStep::more;
    form_ = c == '{' ? Form::object : c == '"' ? Form::string : Form::null;
    if (form_ == Form::string) return ReadStep::more;
    if (form_ == Form::null && c != 'n') return ReadStep::failed;
  }
  if (form_ == Form::string) return push_string(c, text);
  if (form_ == Form::object) return scanner_.push(c, text);
  std::string null;
  const ReadStep step = scanner_.push(c, null);
  if (step == ReadStep::done) text += "{}";
  return step;
}

ReadStep JsonArguments::push_string(char c, std::string& text) {
  std::string decoded;
  const ReadStep step = decoder_.push(c, decoded);
  for (const char d : decoded) {
    if (is_space(d) && (is_whole_ || !has_begun_)) continue;
    if (is_whole_ || (!has_begun_ && d != '{')) return ReadStep::failed;
    has_begun_ = true;
    const ReadStep inner = scanner_.push(d, text);
    if (inner == ReadStep::failed) return inner;
    is_whole_ = inner == ReadStep::done;
  }
  if (step != ReadStep::done) return step;
  if (!has_begun_) text += "{}";
  return is_whole_ || !has_begun_ ? ReadStep::done : ReadStep::failed;
}

}  // namespace minfer::answers
