#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/chat/answer/calls/call_reader.h"
#include "models/chat/answer/calls/json_call_reader.h"
#include "models/chat/answer/values/json_text.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/loose_value.h"

namespace minfer::answer {

/// How calls are written that are a name and an object behind it.
struct NamedCallSyntax {
  std::string_view call_open = {};   ///< in front of each name. Empty: nothing
  std::string_view separator = {};   ///< between name and object, or between a kind and the name
  std::string_view call_close = {};  ///< behind each object. Empty: nothing
  std::string_view close = {};       ///< behind all calls. Empty: the first call is the last
  /// The object is no JSON: keys are bare words, and this stands around texts.
  std::string_view quote = {};
  bool may_be_list = false;  ///< `[` in place of the name: a list of calls in JSON
};

/// DeepSeek, Kimi K2, Mistral from its eleventh tokeniser on, FunctionGemma. What stands in front of the object is the header; the name is
/// in it: DeepSeek V3 writes `function<separator>NAME`, a line end and a fence, DeepSeek V3.1 `NAME<separator>`, Kimi `functions.NAME:0`,
/// Mistral `NAME[CALL_ID]ID[ARGS]`, FunctionGemma `call:NAME`.
class NamedCallReader final : public CallReader {
 public:
  NamedCallReader(const NamedCallSyntax& syntax, const CallContext& context);
  Step push(char c) override;
  bool may_end() const override;

 private:
  enum class State { before_call, header, object, after_call };

  Step push_header(char c);
  Step push_object(char c);
  Step push_after_call(char c);
  std::string_view name_in_header() const;

  const NamedCallSyntax syntax_;
  const CallContext context_;
  State state_;
  ExpectedLiteral expected_;
  std::string header_;
  JsonScanner json_;
  std::optional<LooseValue> loose_;     ///< the object, where it is no JSON
  std::optional<JsonCallReader> list_;  ///< reads instead of this one, when there is a list
  bool has_call_ = false;
};

}  // namespace minfer::answer
