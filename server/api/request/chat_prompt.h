#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/api/fields/json_fields.h"
#include "server/api/request/completion_request.h"
#include "server/api/request/structured_output.h"
#include "server/api/request/tools.h"

namespace minfer {

/// A conversation as the chat template sees it, checked but not rendered.
struct ChatPrompt {
  nlohmann::ordered_json variables{{"add_generation_prompt", true}};  ///< see ApiContext::render_chat
  /// Template variables that the request sets by fields of other names, with the names of these fields.
  std::vector<std::pair<std::string, std::string>> set_by = {};
  std::string continued_text;  ///< the last message's, if the answer goes on with it; else empty
  bool add_special = false;    ///< BOS and EOS beside those that the template writes
  ToolChoice tool_choice;
  OfferedTools tools = {};
  std::optional<StructuredOutput> output = {};  ///< the form of the content; absent: it is free
  AnswerParsing parsing = {};                   ///< of the answer, as far as the request says so
};

/// messages, tools, tool_choice, parallel_tool_calls, reasoning_effort, include_reasoning, add_generation_prompt,
/// continue_final_message, add_special_tokens, chat_template_kwargs.
ChatPrompt read_chat_prompt(JsonFields& fields, const ApiContext& context);

/// Reads `tools` of a request and shows them. prompt.tool_choice is set.
void read_tools(JsonFields& fields, const ToolShape& shape, const ApiContext& context, ChatPrompt& prompt);
/// Shows the template prompt.tools, unless tool_choice is none.
void show_tools(ChatPrompt& prompt);

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
nlohmann::ordered_json read_messages(JsonFields& fields);

/// Adds a line; the first text has no line end in front.
void join_line(std::string& text, std::string_view more);

/// The types of parts that a text may consist of, each with the member that holds its text (empty: it has none).
using TextParts = std::span<const std::pair<std::string_view, std::string_view>>;
/// A required member: a string, or the texts of parts, joined by line ends. Parts' members that are named in `advice` have no effect.
/// Throws ApiError for anything else.
std::string read_texts(JsonFields& fields, std::string_view name, TextParts types,
                       std::span<const std::string_view> advice = {});
/// Refuses a part of a type that is no text; `expected`: the types that are.
[[noreturn]] void refuse_part(const std::string& path, std::string_view type, std::string_view expected);

/// A call as templates know it.
nlohmann::ordered_json make_call(std::string_view id, std::string_view name,
                                 nlohmann::ordered_json arguments);

/// A message of the assistant as templates know it. Thoughts and calls (a list) are members if there are some; then the text may be
/// null.
nlohmann::ordered_json make_assistant_message(const std::string& content, const std::string& reasoning,
                                              nlohmann::ordered_json calls);
/// Arguments of a call for the template: an object, if the text is one.
nlohmann::ordered_json read_arguments(const std::string& text);

/// Holds a completion to the form that its request asks for, if any.
void hold_completion(CompletionRequest& request, const std::optional<StructuredOutput>& output,
                     const ApiContext& context);

/// Holds a chat's answer to the form of its content, to calls where tool_choice demands them, and to strict tools' schemas where the
/// model calls one. Thoughts stay free. request.parsing is set. Throws ApiError (400), by the field that asks, for what cannot be held.
void hold_chat_answer(CompletionRequest& request, const ChatPrompt& prompt, const ApiContext& context);

}  // namespace minfer
