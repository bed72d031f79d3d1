#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/chat/answer/chat_answer_parser.h"
#include "models/grammar/grammar_builder.h"

namespace minfer {

/// A function that an answer may call.
struct ToolFunction {
  std::string name;
  nlohmann::ordered_json parameters;  ///< JSON schema; null: any object
  /// True: its arguments follow the schema, and a schema that cannot be honoured is refused. False: they follow the schema if possible.
  bool strict = false;
  /// For a custom tool: the Lark grammar of its one argument, kCustomInput, enforced as for a strict tool. Empty: the schema holds.
  std::string input_lark = {};
};

/// The constraints on an answer in a chat: thoughts, calls and content, each in the model's format.
struct ChatGrammarOptions {
  enum class Calls : uint8_t {
    none,  ///< only content
    optional,  ///< content, then calls if the model begins one: free text until its marker, and constrained from there on
    required,  ///< only calls
  };
  Calls calls = Calls::none;
  bool several_calls = true;
  const ChatFormat* call_format = nullptr;       ///< of calls; not null if there may be calls
  const ChatFormat* reasoning_format = nullptr;  ///< null: the model does not think
  bool begins_in_reasoning = false;              ///< the prompt has opened the thoughts
  /// The grammar of the content; null: any text.
  std::function<GrammarBuilder::Expr(GrammarBuilder&)> content;
};

/// Throws GrammarError naming the tool and the place in its schema, or the format if its calls cannot be constrained.
GrammarBuilder::Expr add_chat_grammar(GrammarBuilder& builder, const std::vector<ToolFunction>& tools,
                                      const ChatGrammarOptions& options);

}  // namespace minfer
