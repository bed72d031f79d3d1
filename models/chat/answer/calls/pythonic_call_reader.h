#pragma once

#include <string>
#include <string_view>

#include "models/chat/answer/calls/call_reader.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/loose_value.h"

namespace minfer::answer {

/// How calls are written in Python: `[f(a=1), g()]`, or one behind the other.
struct PythonicCallSyntax {
  std::string_view close = {};  ///< behind the calls. Empty: nothing
  bool needs_list = false;      ///< only a list holds calls
  /// No marker says that these are calls: they are if the request has such functions (when it says which).
  bool is_bare = false;
};

/// Llama 3.2 and 4, LFM2, OLMo 3, Gemma 3. Arguments have names; they become a JSON object. `print(f(...))`, which Gemma likes to
/// write, is a call of f.
class PythonicCallReader final : public CallReader {
 public:
  PythonicCallReader(const PythonicCallSyntax& syntax, const CallContext& context);
  Step push(char c) override;
  bool may_end() const override;

 private:
  enum class State {
    before_calls,
    before_name,
    name,
    before_key,
    key,
    behind_key,
    value,
    after_value,
    after_call,
    after_list
  };

  Step push_before_calls(char c);
  Step push_name(char c);
  Step push_before_key(char c);
  Step push_key(char c);
  Step push_value(char c);
  Step push_after_value(char c);
  Step push_after_call(char c);
  Step end_call();
  Step end_list();

  const PythonicCallSyntax syntax_;
  State state_ = State::before_calls;
  bool in_list_ = false;
  bool in_print_ = false;
  bool is_given_ = false;  ///< the call has begun for the client
  bool has_call_ = false;
  ExpectedLiteral expected_;
  std::string name_;
  std::string key_;
  LooseValue value_;
};

}  // namespace minfer::answer
