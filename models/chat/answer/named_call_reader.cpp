#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "models/chat/answer/call_reader.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/loose_value.h"

namespace minfer::answers {
namespace {

/// Without the number of the call behind it.
std::string_view without_index(std::string_view name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == name.size()) return name;
  const bool is_number = name.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return is_number ? name.substr(0, colon) : name;
}

/// DeepSeek, Kimi K2, Mistral from its eleventh tokeniser on, FunctionGemma. What stands in front of the object is the header; the name is
/// in it: DeepSeek V3 writes `function<separator>NAME`, a line end and a fence, DeepSeek V3.1 `NAME<separator>`, Kimi `functions.NAME:0`,
/// Mistral `NAME[CALL_ID]ID[ARGS]`, FunctionGemma `call:NAME`.
class NamedCallReader final : public CallReader {
 public:
  NamedCallReader(const NamedCallSyntax& syntax, const CallContext& context)
      : CallReader(context),
        syntax_(syntax),
        context_(context),
        state_(syntax.call_open.empty() ? &Self::header : &Self::before_call),
        expected_({syntax.call_open}) {}

  Step push(char c) override {
    if (list_) {
      const Step step = list_->push(c);
      return step == Step::failed  ? fail_at("a list of calls in JSON", c)
             : step == Step::ended ? end_before(list_->unread())
                                   : step;
    }
    return (this->*state_)(c);
  }

  bool may_end() const override {
    if (list_) return list_->may_end();
    return has_call_ && (state_ == &Self::after_call || state_ == &Self::before_call);
  }

 private:
  using Self = NamedCallReader;

  Step before_call(char c) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kNone) return fail_at(syntax_.call_open, c);
    if (found >= 0) state_ = &Self::header;
    return Step::more;
  }

  Step header(char c) {
    if (c == '[' && syntax_.may_be_list && trimmed(header_).empty() && !has_call_) {
      list_ = make_call_reader(JsonCallSyntax{}, context_);
      return list_->push(c);
    }
    if (c != '{') {
      // Where no marker says that a name follows, a text may.
      const bool may_stand = !syntax_.call_open.empty() || is_name_byte(c) || c == '[' || c == ']' ||
                             c == ':' || (is_space(c) && trimmed(header_).empty());
      if (header_.size() == kMaxNameBytes || !may_stand) return fail_at("the arguments of a call", c);
      header_ += c;
      return Step::more;
    }
    const std::string_view name = name_in_header();
    if (name.empty()) return fail_at("the name of a function", c);
    out_.begin_call(name);
    has_call_ = true;
    json_ = {};
    if (!syntax_.quote.empty()) loose_.emplace(LooseSyntax{.quote = syntax_.quote, .bare_words = true});
    state_ = &Self::object;
    return object(c);
  }

  Step object(char c) {
    std::string text;
    const ReadStep step = loose_ ? loose_->push(c, text) : json_.push(c, text);
    if (step == ReadStep::failed) return fail_at("arguments, an object", c);
    out_.arguments(text);
    if (step != ReadStep::done) return Step::more;
    out_.end_call();
    std::vector<std::string_view> next;
    for (const std::string_view literal :
         {syntax_.close, syntax_.call_open, syntax_.call_close, std::string_view("```")}) {
      if (!literal.empty() && !syntax_.close.empty()) next.push_back(literal);
    }
    if (next.empty()) return Step::done;
    expected_ = ExpectedLiteral(std::move(next));
    state_ = &Self::after_call;
    return Step::more;
  }

  Step after_call(char c) {
    const int32_t found = expected_.push(c);
    if (found == ExpectedLiteral::kMore) return Step::more;
    if (found == ExpectedLiteral::kNone) return end_before(expected_.text());
    const std::string_view literal = std::string_view(expected_.text()).substr(expected_.num_spaces());
    if (literal == syntax_.close) return Step::done;
    if (literal == syntax_.call_open) {
      header_.clear();
      state_ = &Self::header;
    }
    expected_.clear();
    return Step::more;
  }

  std::string_view name_in_header() const {
    std::string_view name = header_;
    if (const size_t separator = name.find(syntax_.separator);
        !syntax_.separator.empty() && separator != std::string_view::npos) {
      const std::string_view behind = trimmed(name.substr(separator + syntax_.separator.size()));
      name = behind.empty() ? name.substr(0, separator) : behind;
    }
    name = trimmed(name);
    name = trimmed(name.substr(0, name.find_first_of("\n[`")));
    for (const std::string_view prefix : {"functions.", "call:"}) {
      if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
    }
    name = without_index(name);
    return std::all_of(name.begin(), name.end(), is_name_byte) ? name : std::string_view();
  }

  const NamedCallSyntax syntax_;
  const CallContext context_;
  Step (Self::*state_)(char);  ///< takes the next byte
  ExpectedLiteral expected_;
  std::string header_;
  JsonScanner json_;
  std::optional<LooseValue> loose_;   ///< the object, where it is no JSON
  std::unique_ptr<CallReader> list_;  ///< reads instead of this one, when there is a list
  bool has_call_ = false;
};

}  // namespace

std::unique_ptr<CallReader> make_call_reader(const NamedCallSyntax& syntax, const CallContext& context) {
  return std::make_unique<NamedCallReader>(syntax, context);
}

}  // namespace minfer::answers
