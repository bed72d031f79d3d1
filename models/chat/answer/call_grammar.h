#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "models/chat/answer/chat_format.h"
#include "models/chat/answer/chat_grammar.h"

namespace minfer::answer {

/// Makes grammar expressions for the texts of calls in each format.
class CallGrammar {
 public:
  using Expr = GrammarBuilder::Expr;

  /// Both arguments must outlive this.
  CallGrammar(GrammarBuilder& builder, const std::vector<ToolFunction>& tools)
      : builder_(builder), tools_(tools) {}

  /// A marker: the control token with this text, or the plain text if there is no such token. Empty: nothing.
  Expr marker(std::string_view text);
  /// Any text without these markers.
  Expr text_without(std::span<const std::string_view> markers);
  /// The calls of a region, with its opening marker in front.
  Expr calls(const CallOpening& opening, bool several);
  Expr harmony_call();

 private:
  Expr json_calls(const CallOpening& opening, const JsonCallSyntax& syntax, bool several);
  Expr named_calls(const CallOpening& opening, const NamedCallSyntax& syntax, bool several);
  Expr tagged_calls(const CallOpening& opening, const TaggedCallSyntax& syntax, bool several);
  Expr pythonic_calls(const CallOpening& opening, const PythonicCallSyntax& syntax, bool several);

  template <class Make>
  Expr any_tool(const Make& make);
  Expr json_call(std::string_view arguments_key);
  Expr named_call(const NamedCallSyntax& syntax);
  Expr tagged_call(const TaggedCallSyntax& syntax);
  Expr pythonic_call();
  Expr tagged_text(const TaggedCallSyntax& syntax, const ToolFunction& tool, const std::string& key,
                   const nlohmann::ordered_json& schema);
  Expr tagged_parameter(const TaggedCallSyntax& syntax, const ToolFunction& tool, const std::string& key,
                        const nlohmann::ordered_json& schema);
  Expr pythonic_value(const ToolFunction& tool, const std::string& key, const nlohmann::ordered_json& schema);
  Expr arguments_of(const ToolFunction& tool);
  Expr input_text(const ToolFunction& tool);
  Expr schema_or_any(const ToolFunction& tool, const nlohmann::ordered_json& schema, const std::string& path);
  Expr white_space();
  Expr list_of(Expr item, std::string_view separator, bool several);

  GrammarBuilder& builder_;
  const std::vector<ToolFunction>& tools_;
};

}  // namespace minfer::answer
