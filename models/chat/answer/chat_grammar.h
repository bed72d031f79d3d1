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
  /// Its arguments are held to the schema, which is refused if that cannot be. Else they are where it can.
  bool strict = false;
  /// Of a custom tool: the Lark grammar of its one argument, kCustomInput, which is held as of a strict tool. Empty: the schema holds.
  std::string input_lark = {};
};

/// What an answer in a chat is held to: thoughts, calls and content, each as the model's format writes them.
struct ChatGrammarOptions {
  enum class Calls : uint8_t {
    none,  ///< content alone
    optional,  ///< content, then calls if the model begins one: free text until its marker, and held from there on
    required,  ///< calls alone
  };
  Calls calls = Calls::none;
  bool several_calls = true;
  const ChatFormat* call_format = nullptr;       ///< of calls; not null where there may be any
  const ChatFormat* reasoning_format = nullptr;  ///< null: the model does not think
  bool begins_in_reasoning = false;              ///< the prompt has opened the thoughts
  /// What the content is held to; null: any text.
  std::function<GrammarBuilder::Expr(GrammarBuilder&)> content;
};

/// Throws GrammarError naming the tool and the place in its schema, or the format if its calls cannot be held.
GrammarBuilder::Expr add_chat_grammar(GrammarBuilder& builder, const std::vector<ToolFunction>& tools,
                                      const ChatGrammarOptions& options);

}  // namespace minfer
