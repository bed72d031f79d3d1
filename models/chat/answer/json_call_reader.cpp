#include <string>
#include <string_view>

#include "models/chat/answer/call_reader.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"

namespace minfer::answers {
namespace {

/// Hermes, Llama 3, Mistral up to its third tokeniser, Granite, Phi 4, Nemotron. The arguments' bytes go out as they come; if they come
/// before the name, they wait for it.
class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(const JsonCallSyntax& syntax, const CallContext& context)
      : CallReader(context), syntax_(syntax), in_list_(syntax.is_list) {}

  Step push(char c) override { return (this->*state_)(c); }

  bool may_end() const override {
    return state_ == &Self::after_call || state_ == &Self::after_list || is_given_;
  }

 private:
  using Self = JsonCallReader;
  using State = Step (Self::*)(char);

  Step before_call(char c) {
    if (is_space(c)) return Step::more;
    if (c == '[' && !in_list_) {
      in_list_ = true;
      return Step::more;
    }
    if (c != '{') return fail_at("a call in JSON", c);
    name_.clear();
    waiting_.clear();
    arguments_ = {};
    has_name_ = has_arguments_ = is_given_ = in_function_ = false;
    state_ = &Self::before_key;
    return Step::more;
  }

  Step before_key(char c) {
    if (is_space(c)) return Step::more;
    if (c == '}') return end_object(c);
    if (c != '"') return fail_at("a key in quotes", c);
    key_.clear();
    string_ = {};
    state_ = &Self::key;
    return Step::more;
  }

  Step key(char c) { return push_string(c, key_, &Self::colon); }

  Step colon(char c) {
    if (is_space(c)) return Step::more;
    if (c != ':') return fail_at("':' behind a key", c);
    state_ = &Self::before_value;
    return Step::more;
  }

  Step name(char c) {
    const Step step = push_string(c, name_, &Self::after_value);
    has_name_ = state_ == &Self::after_value;
    return has_name_ && has_arguments_ ? give_call() : step;
  }

  Step push_string(char c, std::string& text, State next) {
    const ReadStep step = string_.push(c, text);
    if (step == ReadStep::failed || text.size() > kMaxNameBytes)
      return fail_at("the end of a string of a call", c);
    if (step == ReadStep::done) state_ = next;
    return Step::more;
  }

  Step before_value(char c) {
    if (is_space(c)) return Step::more;
    string_ = {};
    other_ = {};
    if (c == '{' && key_ == "function" && !in_function_) {
      in_function_ = true;
      state_ = &Self::before_key;
      return Step::more;
    }
    if (c == '"' && (key_ == "name" || key_ == "function") && !has_name_) {
      name_.clear();
      state_ = &Self::name;
      return Step::more;
    }
    const bool is_arguments = (key_ == "arguments" || key_ == "parameters") && !has_arguments_;
    state_ = is_arguments ? &Self::arguments : &Self::other;
    return push(c);
  }

  Step arguments(char c) {
    if (has_name_ && !may_be_call()) return fail_at("a function of the request", c);
    std::string text;
    const ReadStep step = arguments_.push(c, text);
    if (step == ReadStep::failed) return fail_at("arguments, an object in JSON", c);
    if (!text.empty()) give_arguments(text);
    if (step != ReadStep::done) return Step::more;
    has_arguments_ = true;
    state_ = &Self::after_value;
    return has_name_ ? give_call() : Step::more;
  }

  Step other(char c) {
    std::string ignored;
    const ReadStep step = other_.push(c, ignored);
    if (step == ReadStep::failed) return fail_at("a value in JSON", c);
    if (step != ReadStep::more) state_ = &Self::after_value;
    return step == ReadStep::ended ? push(c) : Step::more;
  }

  Step after_value(char c) {
    if (is_space(c)) return Step::more;
    if (c == '}') return end_object(c);
    if (is_given_ && has_arguments_ && syntax_.close.starts_with(c)) {
      expect_next_call();  // small models forget a brace, or write one too many: what matters is there
      return push(c);
    }
    if (c != ',') return fail_at("',' or '}' behind a value", c);
    state_ = &Self::before_key;
    return Step::more;
  }

  Step after_list(char c) {
    const int32_t found = next_.push(c);
    if (found == ExpectedLiteral::kNone) return end_before(next_.text());
    return found == ExpectedLiteral::kMore ? Step::more : Step::done;
  }

  Step after_call(char c) {
    const int32_t found = next_.push(c);
    if (found == ExpectedLiteral::kMore) return Step::more;
    if (found == ExpectedLiteral::kNone) return end_before(next_.text());
    next_.clear();
    if (c == '}') {
      out_.settle();
      return Step::more;
    }
    if (c == '{' || c == ';' || c == ',') {
      state_ = &Self::before_call;
      return c == '{' ? push(c) : Step::more;
    }
    if (c != ']' || !in_list_ || syntax_.close.empty()) return Step::done;
    next_ = ExpectedLiteral({syntax_.close});
    state_ = &Self::after_list;
    return Step::more;
  }

  Step end_object(char c) {
    if (in_function_) {
      in_function_ = false;
      state_ = &Self::after_value;
      return Step::more;
    }
    if (!has_name_ || !may_be_call()) return fail_at("the name of a function", c);
    if (!has_arguments_) {
      if (syntax_.is_bare) return fail_at("arguments", c);
      give_arguments("{}");
      out_.end_call();
    }
    expect_next_call();
    return Step::more;
  }

  /// The client has the whole call now, although its object may go on.
  Step give_call() {
    if (!may_be_call()) return fail_at("a function of the request", '"');
    if (!is_given_) give_arguments(waiting_);
    out_.end_call();
    return Step::more;
  }

  void expect_next_call() {
    out_.settle();
    state_ = &Self::after_call;
    if (in_list_) {
      next_ = ExpectedLiteral({",", "]"});
    } else if (syntax_.close.empty()) {
      next_ = ExpectedLiteral({";"});
    } else {
      next_ = ExpectedLiteral({syntax_.close, ";", ",", "{", "}"});
    }
  }

  bool may_be_call() const {
    return !name_.empty() && !(syntax_.is_bare && tools_.is_known() && !tools_.has_function(name_));
  }

  void give_arguments(std::string_view text) {
    if (!has_name_) {
      waiting_ += text;
      return;
    }
    if (!is_given_) out_.begin_call(name_);
    is_given_ = true;
    out_.arguments(text);
  }

  const JsonCallSyntax syntax_;
  State state_ = &Self::before_call;  ///< takes the next byte
  bool in_list_ = false;
  bool in_function_ = false;  ///< within {"function": {...}}
  ExpectedLiteral next_;      ///< behind a call
  JsonStringDecoder string_;
  JsonScanner other_;
  JsonArguments arguments_;
  std::string key_;
  std::string name_;
  std::string waiting_;  ///< arguments that came before the name
  bool has_name_ = false;
  bool has_arguments_ = false;  ///< and they are whole
  bool is_given_ = false;       ///< the call has begun for the client
};

}  // namespace

std::unique_ptr<CallReader> make_call_reader(const JsonCallSyntax& syntax, const CallContext& context) {
  return std::make_unique<JsonCallReader>(syntax, context);
}

}  // namespace minfer::answers
