#include "server/bench/json_skim.h"

#include <algorithm>
#include <charconv>

#include <nlohmann/json.hpp>

namespace minfer {
namespace {

/// Walks over JSON text from value to value. Stops at the end of the text, whatever is missing there.
class Walker {
 public:
  explicit Walker(std::string_view text) : text_(text) { skip_space(); }

  /// Steps over `c` and the space behind it, if it stands here.
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    skip_space();
    return true;
  }

  /// Steps over a value and the space behind it.
  std::string_view take_value() {
    const size_t begin = at_;
    skip_value();
    const std::string_view value = text_.substr(begin, at_ - begin);
    skip_space();
    return value;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && static_cast<unsigned char>(text_[at_]) <= ' ')
      ++at_;
  }

  void skip_value() {
    int64_t depth = 0;
    do {
      if (at_ >= text_.size()) return;
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
      } else if (c == '{' || c == '[') {
        ++depth;
        ++at_;
      } else if (c == '}' || c == ']') {
        --depth;
        ++at_;
      } else if (depth > 0) {
        ++at_;
      } else {
        skip_plain();
      }
    } while (depth > 0);
  }

  void skip_string() {
    size_t quote = at_;
    do {
      quote = text_.find('"', quote + 1);
      if (quote == std::string_view::npos) {
        at_ = text_.size();
        return;
      }
    } while (is_escaped(quote));
    at_ = quote + 1;
  }

  /// Whether an odd number of backslashes stands before a character of a string.
  bool is_escaped(size_t at) const {
    size_t num_backslashes = 0;
    while (text_[at - 1 - num_backslashes] == '\\')
      ++num_backslashes;  // the quote that opens the string is none
    return num_backslashes % 2 != 0;
  }

  /// Numbers, true, false and null: up to what may follow one. At least one byte, so that the walk goes on.
  void skip_plain() { at_ = std::min(text_.find_first_of(",]} \t\r\n", at_ + 1), text_.size()); }

  std::string_view text_;
  size_t at_ = 0;
};

bool is_name(std::string_view key, std::string_view name) {
  if (key.size() == name.size() + 2 && key.substr(1, name.size()) == name) return true;
  return key.find('\\') != std::string_view::npos && json_text(key) == name;
}

}  // namespace

std::string_view json_member(std::string_view object, std::string_view name) {
  std::string_view value;
  json_members(object, {&name, 1}, {&value, 1});
  return value;
}

void json_members(std::string_view object, std::span<const std::string_view> names,
                  std::span<std::string_view> values) {
  std::ranges::fill(values, std::string_view());
  Walker walker(object);
  if (!walker.take('{')) return;
  size_t num_found = 0;
  do {
    const std::string_view key = walker.take_value();
    if (!walker.take(':')) return;
    const std::string_view value = walker.take_value();
    for (size_t i = 0; i < names.size(); ++i) {
      if (!values[i].empty() || !is_name(key, names[i])) continue;
      values[i] = value;
      ++num_found;
    }
  } while (num_found < names.size() && walker.take(','));
}

std::string_view json_first(std::string_view array) {
  Walker walker(array);
  if (!walker.take('[') || walker.take(']')) return {};
  return walker.take_value();
}

int64_t json_integer(std::string_view value, int64_t otherwise) {
  int64_t number = 0;
  const char* end = value.data() + value.size();
  const auto parsed = std::from_chars(value.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end ? number : otherwise;
}

std::string json_text(std::string_view value) {
  if (value.size() < 2 || value.front() != '"' || value.back() != '"') return {};
  if (value.find('\\') == std::string_view::npos) return std::string(value.substr(1, value.size() - 2));
  const nlohmann::json parsed = nlohmann::json::parse(value, nullptr, false);
  return parsed.is_string() ? parsed.get<std::string>() : std::string();
}

}  // namespace minfer
