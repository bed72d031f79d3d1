#include "models/chat/answer/custom_input.h"

#include <utility>

#include "models/chat/answer/values/literals.h"
#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

/// White space may stand in front of '{', the key, ':' and the value.
constexpr std::string_view kOpening = R"({"input":")";

bool may_follow_space(size_t position) {
  return position <= 1 || position + 2 >= kOpening.size();
}

}  // namespace

std::string CustomInput::push(std::string_view arguments) {
  for (const char c : arguments)
    take(c);
  return take_complete_utf8(text_);
}

std::string CustomInput::finish(bool whole) {
  if (state_ == State::opening && whole) text_ += held_;
  return replace_invalid_utf8(std::exchange(text_, {}));
}

void CustomInput::take(char c) {
  switch (state_) {
    case State::opening:
      return take_opening(c);
    case State::text:
      return take_text(c);
    case State::behind:
      return;
    case State::raw:
      text_ += c;
  }
}

void CustomInput::take_opening(char c) {
  held_ += c;
  if (answers::is_space(c) && may_follow_space(num_matched_)) return;
  if (c == kOpening[num_matched_]) {
    if (++num_matched_ < kOpening.size()) return;
    state_ = State::text;
  } else {
    state_ = State::raw;
    text_ += held_;
  }
  held_.clear();
}

void CustomInput::take_text(char c) {
  held_ += c;
  const size_t before = text_.size();
  const answers::ReadStep step = decoder_.push(c, text_);
  if (step == answers::ReadStep::done) {
    state_ = State::behind;
  } else if (step == answers::ReadStep::failed) {
    text_.resize(before);
    text_ += std::exchange(held_, {});
    decoder_ = {};
  } else if (text_.size() > before) {
    held_.clear();
  }
}

}  // namespace minfer
