#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"
#include "server/api/request/structured_output.h"

namespace minfer {

/// A conversation as the chat template sees it, checked but not rendered.
struct ChatPrompt {
  nlohmann::ordered_json variables;  ///< see ApiContext::render_chat
  /// Template variables that the request sets by fields of other names, with the names of these fields.
  std::vector<std::pair<std::string, std::string>> set_by = {};
  std::string continued_text;  ///< the last message's, if the answer goes on with it; else empty
  bool add_special = false;    ///< BOS and EOS beside those that the template writes
  ToolChoice tool_choice;
  ToolNames custom_tools = {};                  ///< see CompletionRequest
  InputGrammars input_grammars = {};            ///< grammars of custom tools' texts
  std::vector<std::string> strict_tools = {};   ///< names of those whose arguments are held to their schemas
  std::optional<StructuredOutput> output = {};  ///< the form of the content; absent: it is free
  bool one_call = false;                        ///< see AnswerParsing
  bool shows_reasoning = true;                  ///< the same
};

/// messages, tools, tool_choice, parallel_tool_calls, reasoning_effort, include_reasoning, add_generation_prompt,
/// continue_final_message, add_special_tokens, chat_template_kwargs.
ChatPrompt read_chat_prompt(JsonFields& fields, const ApiContext& context);

/// Sets the tools that the template is shown, and those whose calls are held to something, from `tools` as OpenAI's chats have
/// them. prompt.tool_choice is set.
void take_tools(JsonFields& fields, const ApiContext& context, ChatPrompt& prompt);

/// The name by which the model is shown a tool of a namespace (empty: of no namespace).
using ShownName = std::function<std::string(std::string_view space, const std::string& name)>;

/// "auto", "none", "required", an object that names a function ({"type":"function","function":{"name"}} or
/// {"type":"function","name"}), or an object of type allowed_tools, with mode "auto" or "required" and a list `tools` of such
/// objects. A custom tool is named in the same ways, with "custom" for "function". With `shown_name` there are namespaces.
ToolChoice read_tool_choice(JsonFields& fields, const ShownName& shown_name = {});

/// Sets the effort as templates know it: the variable reasoning_effort and, for "none", enable_thinking. Sets
/// nothing for an effort that nobody knows. Variables that are set stay. `field`: the request's field that says so.
void set_reasoning_effort(ChatPrompt& prompt, std::string_view effort, const std::string& field);

struct TokenisedChat {
  std::vector<TokenId> tokens;
  bool ends_in_reasoning = false;  ///< the answer begins inside the model's thoughts
};
/// Renders and tokenises. If the template refuses the messages, throws ApiError (400) for `field`, which holds them.
/// Fields that the template ignores join `unknown`; throws ApiError if these include tools and the answer must call one.
TokenisedChat tokenise_chat(const ChatPrompt& prompt, const ApiContext& context, UnknownFields& unknown,
                            std::string_view field = "messages");

/// Renders and tokenises the prompt of a request whose sampling is known, decides
/// what to look for in its answer, and sets the fields that were ignored.
void set_chat_prompt(CompletionRequest& request, const ChatPrompt& prompt, const ApiContext& context,
                     UnknownFields& unknown);

/// The messages for the template. Line ends join text parts. "developer" becomes "system", which
/// templates know. Arguments of tool calls that are JSON objects in a string become objects.
nlohmann::ordered_json read_messages(const nlohmann::ordered_json& list, UnknownFields& unknown);

/// Arguments of a call for the template: an object, if the text is one.
nlohmann::ordered_json read_arguments(const std::string& text);

/// A tool as templates know it. Throws ApiError if a function may not have the name; `path` is the tool's own.
nlohmann::ordered_json make_tool(const std::string& name, const std::string& path,
                                 const nlohmann::ordered_json* description,
                                 const nlohmann::ordered_json* parameters);

/// Throws ApiError if the list has more than `max_tools`.
void check_num_tools(const nlohmann::ordered_json& list, int32_t max_tools);

struct OfferedTools {
  /// For the template: checked, otherwise as they came, less ignored members (unknown ones, `strict`), which the model must not see.
  nlohmann::ordered_json shown;
  std::vector<std::string> strict;  ///< names of those whose arguments are held to their schemas
  ToolNames custom;                 ///< that are shown as functions of one text
  InputGrammars input_grammars;     ///< of these
};
/// Reads functions and custom tools.
OfferedTools read_tools(const nlohmann::ordered_json& list, const ApiContext& context,
                        UnknownFields& unknown);

}  // namespace minfer
