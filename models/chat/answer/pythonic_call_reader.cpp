#include <string>

#include "models/chat/answer/call_reader.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/loose_value.h"

namespace minfer::answers {
namespace {

/// A number or a minus begins no name.
bool begins_name(char c) {
  return is_name_byte(c) && c != '-' && c != '.' && !(c >= '0' && c <= '9');
}

/// Llama 3.2 and 4, LFM2, OLMo 3, Gemma 3. Arguments have names; they become a JSON object. `print(f(...))`, which Gemma likes to
/// write, is a call of f.
class PythonicCallReader final : public CallReader {
 public:
  PythonicCallReader(const PythonicCallSyntax& syntax, const CallContext& context)
      : CallReader(context), syntax_(syntax) {}

  Step push(char c) override { return (this->*state_)(c); }

  bool may_end() const override {
    return has_call_ &&
           (state_ == &Self::before_name || state_ == &Self::after_call || state_ == &Self::after_list);
  }

 private:
  using Self = PythonicCallReader;

  Step before_calls(char c) {
    if (c != '[' || in_list_) return before_name(c);
    in_list_ = true;
    return Step::more;
  }

  Step before_name(char c) {
    if (is_space(c)) return Step::more;
    if (c == ']' && in_list_ && has_call_) return end_list();
    if (!begins_name(c) || (syntax_.needs_list && !in_list_)) return fail_at("the name of a function", c);
    name_ = c;
    state_ = &Self::name;
    return Step::more;
  }

  Step name(char c) {
    if (c != '(') {
      if (!is_name_byte(c) || name_.size() == kMaxNameBytes) return fail_at("'(' behind a function", c);
      name_ += c;
      return Step::more;
    }
    const bool is_declared = tools_.has_function(name_);
    if (name_ == "print" && !is_declared && !in_print_) {
      in_print_ = true;
      state_ = &Self::before_name;
      return Step::more;
    }
    if (syntax_.is_bare && tools_.is_known() && !is_declared) return fail_at("a function of the request", c);
    state_ = &Self::before_key;
    return Step::more;
  }

  Step before_key(char c) {
    if (is_space(c)) return Step::more;
    if (c == ')') return end_arguments();
    if (!begins_name(c)) return fail_at("the name of an argument", c);
    key_ = c;
    state_ = &Self::key;
    return Step::more;
  }

  Step key(char c) {
    if (is_name_byte(c) && key_.size() < kMaxNameBytes) {
      key_ += c;
      return Step::more;
    }
    state_ = &Self::behind_key;
    return behind_key(c);
  }

  Step behind_key(char c) {
    if (is_space(c)) return Step::more;
    if (c != '=') return fail_at("'=' behind the name of an argument", c);
    if (!out_.in_call()) out_.begin_call(name_);
    give_key(key_);
    value_ = LooseValue();
    state_ = &Self::value;
    return Step::more;
  }

  Step value(char c) {
    std::string text;
    const ReadStep step = value_.push(c, text);
    if (step == ReadStep::failed) return fail_at("a value", c);
    out_.arguments(text);
    if (step != ReadStep::more) state_ = &Self::after_value;
    return step == ReadStep::ended ? push(c) : Step::more;
  }

  Step after_value(char c) {
    if (is_space(c)) return Step::more;
    if (c == ')') return end_arguments();
    if (c != ',') return fail_at("',' or ')' behind an argument", c);
    state_ = &Self::before_key;
    return Step::more;
  }

  Step after_call(char c) { return after(c, true); }
  Step after_list(char c) { return after(c, false); }

  Step after(char c, bool may_go_on) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kMore) return Step::more;
    // Calls that are no list stand on lines of their own.
    const bool is_next = found == ExpectedLiteral::kNone && may_go_on && !in_list_ && !in_print_ &&
                         begins_name(c) && !expected_.text().empty() &&
                         expected_.text().size() == expected_.num_spaces();
    if (found == ExpectedLiteral::kNone && !is_next) return end_before(expected_.text());
    expected_.clear();
    if (is_next || c == ',' || c == ';') {
      state_ = &Self::before_name;
      return is_next ? push(c) : Step::more;
    }
    if (c == ')' && in_print_) {
      out_.settle();
      in_print_ = false;
      expected_ = in_list_ ? ExpectedLiteral({",", "]"}) : ExpectedLiteral({syntax_.close, ";", ","});
      return Step::more;
    }
    if (c == ']' && in_list_) return end_list();
    return Step::done;
  }

  Step end_arguments() {
    if (!out_.in_call()) out_.begin_call(name_);
    end_call();
    has_call_ = true;
    expected_ = in_print_  ? ExpectedLiteral({")"})
                : in_list_ ? ExpectedLiteral({",", "]"})
                           : ExpectedLiteral({syntax_.close, ";", ","});
    state_ = &Self::after_call;
    return Step::more;
  }

  Step end_list() {
    out_.settle();
    if (syntax_.close.empty()) return Step::done;
    expected_ = ExpectedLiteral({syntax_.close});
    in_list_ = false;
    state_ = &Self::after_list;
    return Step::more;
  }

  const PythonicCallSyntax syntax_;
  Step (Self::*state_)(char) = &Self::before_calls;  ///< takes the next byte
  bool in_list_ = false;
  bool in_print_ = false;
  bool has_call_ = false;
  ExpectedLiteral expected_;
  std::string name_;
  std::string key_;
  LooseValue value_;
};

}  // namespace

std::unique_ptr<CallReader> make_call_reader(const PythonicCallSyntax& syntax, const CallContext& context) {
  return std::make_unique<PythonicCallReader>(syntax, context);
}

}  // namespace minfer::answers
