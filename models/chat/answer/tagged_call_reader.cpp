#include <algorithm>
#include <string>
#include <string_view>

#include "models/chat/answer/call_reader.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/loose_value.h"

namespace minfer::answers {
namespace {

/// Qwen3-Coder, Seed-OSS, MiniMax M2, GLM 4.5. The parameters become a JSON object (TaggedValue).
class TaggedCallReader final : public CallReader {
 public:
  TaggedCallReader(const TaggedCallSyntax& syntax, const CallContext& context)
      : CallReader(context),
        syntax_(syntax),
        state_(syntax.name_open.empty() || syntax.begins_with_name ? &Self::name : &Self::before_name),
        expected_({syntax.name_open}),
        value_end_({syntax.value_close}) {}

  Step push(char c) override { return (this->*state_)(c); }

  bool may_end() const override { return state_ == &Self::after_call; }
  std::string_view held() const override {
    return state_ == &Self::value ? std::string_view(value_end_.held()) : std::string_view();
  }

 private:
  using Self = TaggedCallReader;
  using State = Step (Self::*)(char);

  Step before_name(char c) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kNone) return fail_at(syntax_.name_open, c);
    if (found != ExpectedLiteral::kMore) state_ = &Self::name;
    return Step::more;
  }

  Step before_value(char c) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kNone) return fail_at(syntax_.value_open, c);
    if (found != ExpectedLiteral::kMore) begin_value();
    return Step::more;
  }

  Step name(char c) {
    const std::string_view close = syntax_.name_close;
    const bool is_line = close.empty();
    if (name_.empty() && is_line && is_space(c)) return Step::more;
    const size_t length = name_.size() - num_close_bytes_;
    const bool is_end = is_line ? c == '\n' || c == '<' : c == close[num_close_bytes_];
    if (!is_end) {
      if (num_close_bytes_ > 0 || length == kMaxNameBytes || !is_name_byte(c))
        return fail_at("the name of a function", c);
      name_ += c;
      return Step::more;
    }
    if (length == 0) return fail_at("the name of a function", c);
    if (!is_line) {
      name_ += c;
      if (++num_close_bytes_ < close.size()) return Step::more;
      name_.resize(length);
    }
    num_close_bytes_ = 0;
    expect(&Self::body, syntax_.key_open, syntax_.call_close, syntax_.close);
    return is_line ? push(c) : Step::more;
  }

  Step body(char c) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kMore) return Step::more;
    if (found == ExpectedLiteral::kNone) return fail_at("a parameter or the end of a call", c);
    const std::string_view literal = std::string_view(expected_.text()).substr(expected_.num_spaces());
    if (!out_.in_call()) out_.begin_call(name_);
    if (literal == syntax_.key_open) {
      key_.clear();
      state_ = &Self::key;
      return Step::more;
    }
    end_call();
    if (literal == syntax_.close) return Step::done;
    name_.clear();
    return expect(&Self::after_call, syntax_.close, syntax_.name_open);
  }

  Step key(char c) {
    key_ += c;
    if (key_.size() > kMaxNameBytes) return fail_at(syntax_.key_close, c);
    if (!key_.ends_with(syntax_.key_close)) return Step::more;
    key_.resize(key_.size() - syntax_.key_close.size());
    if (!syntax_.value_open.empty()) return expect(&Self::before_value, syntax_.value_open);
    begin_value();
    return Step::more;
  }

  Step value(char c) {
    std::string passed;
    std::string text;
    const bool is_end = value_end_.push(c, passed) >= 0;
    for (const char p : passed)
      value_.push(p, text);
    if (is_end) value_.finish(text);
    out_.arguments(text);
    return is_end ? expect(&Self::body, syntax_.key_open, syntax_.call_close, syntax_.close) : Step::more;
  }

  Step after_call(char c) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kMore) return Step::more;
    if (found == ExpectedLiteral::kNone) return end_before(expected_.text());
    if (expected_.text().ends_with(syntax_.close)) return Step::done;
    state_ = &Self::name;
    return Step::more;
  }

  Step expect(State state, std::string_view first, std::string_view second = {},
              std::string_view third = {}) {
    std::vector<std::string_view> literals;
    for (const std::string_view literal : {first, second, third}) {
      if (!literal.empty()) literals.push_back(literal);
    }
    expected_ = ExpectedLiteral(std::move(literals));
    state_ = state;
    return Step::more;
  }

  void begin_value() {
    give_key(key_);
    value_ = TaggedValue(tools_.parameter(name_, key_), syntax_.has_line_ends);
    state_ = &Self::value;
  }

  const TaggedCallSyntax syntax_;
  State state_;  ///< takes the next byte
  ExpectedLiteral expected_;
  MarkerFinder value_end_;
  std::string name_;
  size_t num_close_bytes_ = 0;  ///< of name_close that name_ ends with
  std::string key_;
  TaggedValue value_;
};

}  // namespace

std::unique_ptr<CallReader> make_call_reader(const TaggedCallSyntax& syntax, const CallContext& context) {
  return std::make_unique<TaggedCallReader>(syntax, context);
}

}  // namespace minfer::answers
