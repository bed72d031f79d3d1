#pragma once

#include <string>
#include <string_view>

#include "models/chat/answer/calls/call_reader.h"
#include "models/chat/answer/values/literals.h"
#include "models/chat/answer/values/tagged_value.h"

namespace minfer::answer {

/// How calls are written that have a tag around each parameter:
/// `<name_open>NAME<name_close> {<key_open>KEY<key_close> <value_open>VALUE<value_close>} <call_close> <close>`.
struct TaggedCallSyntax {
  std::string_view name_open = {};   ///< empty: the name comes first of all
  std::string_view name_close = {};  ///< empty: the name is a line, or ends with the next tag
  std::string_view key_open = {};
  std::string_view key_close = {};
  std::string_view value_open = {};  ///< empty: the value is right behind key_close
  std::string_view value_close = {};
  std::string_view call_close = {};  ///< empty: `close` is
  std::string_view close = {};
  bool has_line_ends = false;     ///< one line end around a value belongs to the tags
  bool begins_with_name = false;  ///< the marker in front of the region was name_open
};

/// Qwen3-Coder, Seed-OSS, MiniMax M2, GLM 4.5. The parameters become a JSON object (TaggedValue).
class TaggedCallReader final : public CallReader {
 public:
  TaggedCallReader(const TaggedCallSyntax& syntax, const CallContext& context);
  Step push(char c) override;
  bool may_end() const override { return state_ == State::after_call; }
  std::string_view held() const override {
    return state_ == State::value ? std::string_view(value_end_.held()) : std::string_view();
  }

 private:
  enum class State { before_name, name, body, key, before_value, value, after_call };

  Step push_name(char c);
  Step push_body(char c);
  Step push_key(char c);
  Step push_value(char c);
  Step push_after_call(char c);
  Step expect(State state, std::string_view first, std::string_view second = {}, std::string_view third = {});
  void begin_value();
  void end_call();

  const TaggedCallSyntax syntax_;
  State state_;
  ExpectedLiteral expected_;
  MarkerFinder value_end_;
  std::string name_;
  size_t num_close_bytes_ = 0;  ///< of name_close that name_ ends with
  std::string key_;
  bool is_given_ = false;  ///< the call has begun for the client
  int32_t num_parameters_ = 0;
  TaggedValue value_;
};

}  // namespace minfer::answer
