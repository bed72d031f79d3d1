#pragma once

#include <string>
#include <string_view>

#include "models/chat/answer/calls/call_reader.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"

namespace minfer::answer {

/// How calls in JSON are written: objects with "name" and "arguments" (or "parameters"), `[a, b]`, `a; b` or one alone.
struct JsonCallSyntax {
  std::string_view close = {};  ///< behind the calls. Empty: nothing
  /// No marker says that this is a call: it is one if it has arguments, of a function that the request has (when it says which).
  bool is_bare = false;
  bool is_list = false;  ///< the marker holds the list's opening bracket
};

/// Hermes, Llama 3, Mistral up to its third tokeniser, Granite, Phi 4, Nemotron. The arguments' bytes go out as they come; if they come
/// before the name, they wait for it.
class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(const JsonCallSyntax& syntax, const CallContext& context);
  Step push(char c) override;
  bool may_end() const override;

 private:
  enum class State {
    before_call,
    before_key,
    key,
    colon,
    before_value,
    name,
    arguments,
    other,
    after_value,
    after_call,
    after_list
  };

  Step push_before_call(char c);
  Step push_string(char c, std::string& text, State next);
  Step push_before_value(char c);
  Step push_arguments(char c);
  Step push_other(char c);
  Step push_after_value(char c);
  Step push_after_calls(char c);
  Step end_object(char c);
  Step end_call();
  void expect_next_call();
  bool may_be_call() const;
  void give_arguments(std::string_view text);

  const JsonCallSyntax syntax_;
  State state_ = State::before_call;
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

}  // namespace minfer::answer
