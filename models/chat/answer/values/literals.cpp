#include "models/chat/answer/values/literals.h"

#include <algorithm>

namespace minfer::answers {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || static_cast<unsigned char>(c) >= 0x80;
}

// A byte is held once and passed once, and what is held is shorter than a marker: the time is linear.
int32_t MarkerFinder::push(char c, std::string& passed) {
  held_ += c;
  const auto may_become = [&](std::string_view marker) { return marker.starts_with(held_); };
  while (!held_.empty() && std::ranges::none_of(markers_, may_become)) {
    passed += held_.front();
    held_.erase(0, 1);
  }
  const auto found = std::find(markers_.begin(), markers_.end(), held_);
  if (held_.empty() || found == markers_.end()) return kNone;
  held_.clear();
  return static_cast<int32_t>(found - markers_.begin());
}

int32_t ExpectedLiteral::push(char c) {
  text_ += c;
  if (num_spaces_ + 1 == text_.size() && is_space(c)) {
    ++num_spaces_;
    return kMore;
  }
  const std::string_view read = std::string_view(text_).substr(num_spaces_);
  int32_t result = kNone;
  for (size_t i = 0; i < literals_.size(); ++i) {
    if (literals_[i] == read) return static_cast<int32_t>(i);
    if (literals_[i].starts_with(read)) result = kMore;
  }
  if (result == kNone) text_.pop_back();
  return result;
}

void ExpectedLiteral::clear() {
  text_.clear();
  num_spaces_ = 0;
}

}  // namespace minfer::answers
