#include "engine/request/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace minfer {
namespace {

std::vector<size_t> borders(const std::string& text) {
  std::vector<size_t> border(text.size(), 0);
  for (size_t i = 1, length = 0; i < text.size(); ++i) {
    while (length > 0 && text[i] != text[length])
      length = border[length - 1];
    if (text[i] == text[length]) ++length;
    border[i] = length;
  }
  return border;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& stop : stops) {
    std::vector<size_t> border = borders(stop);
    patterns_.push_back({.text = std::move(stop), .border = std::move(border)});
  }
}

StopMatcher::Result StopMatcher::push(std::string_view piece, bool may_stop) {
  if (done_) return {};
  for (size_t i = 0; i < piece.size(); ++i) {
    held_ += piece[i];
    const Pattern* longest_match = nullptr;
    for (Pattern& pattern : patterns_) {
      size_t& matched = pattern.matched;
      while (matched > 0 && pattern.text[matched] != piece[i])
        matched = pattern.border[matched - 1];
      if (pattern.text[matched] == piece[i]) ++matched;
      if (matched < pattern.text.size()) continue;
      if (!may_stop) {
        matched = pattern.border.back();
      } else if (longest_match == nullptr || longest_match->text.size() < pattern.text.size()) {
        longest_match = &pattern;
      }
    }
    if (longest_match != nullptr) {
      done_ = true;
      held_.resize(held_.size() - longest_match->text.size());
      return {.text = std::exchange(held_, {}), .matched = longest_match->text};
    }
  }
  size_t keep = 0;
  for (const Pattern& pattern : patterns_)
    keep = std::max(keep, pattern.matched);
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return {.text = std::move(text), .matched = {}};
}

std::string StopMatcher::finish() {
  done_ = true;
  return std::exchange(held_, {});
}

}  // namespace minfer
