#include "server/api/request/held_answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/chat/answer/chat_grammar.h"
#include "models/grammar/grammar_source.h"
#include "server/api/fields/json_fields.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;
using Calls = ChatGrammarOptions::Calls;

void check_can_hold(std::string_view field, const ApiContext& context) {
  if (context.grammars != nullptr) return;
  throw unsupported(field,
                    fmt::format("{}: answers cannot be held to a grammar on this server's device", field));
}

/// The tools that an answer may call, out of those that the template is shown.
std::vector<ToolFunction> callable_tools(const ChatPrompt& prompt) {
  std::vector<ToolFunction> functions;
  const auto tools = prompt.variables.find("tools");
  if (tools == prompt.variables.end()) return functions;
  const std::vector<std::string>& strict = prompt.strict_tools;
  const std::vector<std::string>& chosen = prompt.tool_choice.names;
  for (const Json& tool : *tools) {
    const Json& function = tool.at("function");
    const std::string name = function.at("name").get<std::string>();
    if (!chosen.empty() && std::ranges::find(chosen, name) == chosen.end()) continue;
    const auto found = prompt.input_grammars.find(name);
    functions.push_back({.name = name,
                         .parameters = function.value("parameters", Json()),
                         .strict = std::ranges::find(strict, name) != strict.end(),
                         .input_lark = found == prompt.input_grammars.end() ? "" : found->second});
  }
  return functions;
}

Calls wanted_calls(const ChatPrompt& prompt, const std::vector<ToolFunction>& tools, bool holds_content) {
  switch (prompt.tool_choice.kind) {
    case ToolChoice::Kind::none:
      return Calls::none;
    case ToolChoice::Kind::required:
    case ToolChoice::Kind::named:
      return Calls::required;
    case ToolChoice::Kind::automatic:
      break;
  }
  const bool has_strict = std::ranges::any_of(tools, &ToolFunction::strict);
  const bool is_held = has_strict || holds_content || !prompt.tool_choice.names.empty();
  return !tools.empty() && is_held ? Calls::optional : Calls::none;
}

/// The field that asks to hold the answer's calls.
std::string_view field_of(const ChatPrompt& prompt, Calls calls) {
  return calls == Calls::required || !prompt.tool_choice.names.empty() ? "tool_choice" : "tools";
}

void check_names(const ChatPrompt& prompt, const std::vector<ToolFunction>& tools) {
  for (const std::string& name : prompt.tool_choice.names) {
    if (std::ranges::find(tools, name, &ToolFunction::name) != tools.end()) continue;
    throw bad_request("tool_choice", fmt::format("tool_choice: the request has no tool named {}", name));
  }
}

void check_calls(const ChatPrompt& prompt, const std::vector<ToolFunction>& tools, Calls calls,
                 const ApiContext& context) {
  if (calls == Calls::none) return;
  const bool is_demanded = calls == Calls::required;
  if (is_demanded && tools.empty())
    throw bad_request("tool_choice", "tool_choice: demands a call, but the request has no tool");
  const std::string_view field = field_of(prompt, calls);
  if (context.call_format == nullptr) {
    throw unsupported(field, fmt::format("{}: calls cannot be held to a grammar: the model's chat template "
                                         "has none that are known, see --tool-call-parser",
                                         field));
  }
  check_can_hold(field, context);
}

std::string_view name_of(const ChatFormat* format) {
  return format == nullptr ? std::string_view("-") : name(*format);
}

/// All that the grammar depends on.
std::string key_of(const std::vector<ToolFunction>& tools, const ChatGrammarOptions& options,
                   const std::optional<StructuredOutput>& output) {
  Json list = Json::array();
  for (const ToolFunction& tool : tools)
    list.push_back({tool.name, tool.parameters, tool.strict, tool.input_lark});
  return fmt::format("chat {} {} {} {} {} {} {}", static_cast<int>(options.calls), options.several_calls,
                     name_of(options.call_format), name_of(options.reasoning_format),
                     options.begins_in_reasoning, options.calls == Calls::none ? "" : list.dump(),
                     output ? output->key : "");
}

}  // namespace

std::vector<std::string> strict_tool_names(const Json& tools) {
  std::vector<std::string> names;
  for (const Json& tool : tools) {
    if (!tool.is_object()) continue;
    const auto function = tool.find("function");
    const Json& described = function != tool.end() && function->is_object() ? *function : tool;
    const auto strict = described.find("strict");
    const auto name = described.find("name");
    if (strict == described.end() || *strict != true || name == described.end() || !name->is_string())
      continue;
    names.push_back(name->get<std::string>());
  }
  return names;
}

void hold_completion(CompletionRequest& request, const std::optional<StructuredOutput>& output,
                     const ApiContext& context) {
  if (!output) return;
  check_can_hold(output->field, context);
  request.form = std::make_shared<const StructuredOutput>(*output);
}

void hold_chat_answer(CompletionRequest& request, const ChatPrompt& prompt, const ApiContext& context) {
  const std::optional<StructuredOutput>& output = prompt.output;
  const std::vector<ToolFunction> tools = callable_tools(prompt);
  check_names(prompt, tools);
  Calls calls = wanted_calls(prompt, tools, output.has_value());
  // If no format of calls is known, the model's text holds no calls: there is nothing to hold to a schema.
  if (calls == Calls::optional && context.call_format == nullptr) calls = Calls::none;
  check_calls(prompt, tools, calls, context);
  if (calls == Calls::none && !output) return;
  if (output) check_can_hold(output->field, context);
  if (!prompt.continued_text.empty()) {
    const std::string_view field = output ? std::string_view(output->field) : field_of(prompt, calls);
    throw unsupported(
        field,
        fmt::format("{}: an answer that goes on with the last message cannot be held to a form", field));
  }

  UnknownFields formats(false);
  for (const ToolFunction& tool : tools)
    for (const std::string& format : unknown_formats(tool.parameters))
      formats.add("tools[]", "format:" + format);
  std::ranges::copy(formats.names(), std::back_inserter(request.ignored_fields));
  ChatGrammarOptions options{
      .calls = calls,
      // One that is named is wanted once: a model that is made to call it would go on for ever.
      .several_calls = !prompt.one_call && prompt.tool_choice.kind != ToolChoice::Kind::named,
      .call_format = context.call_format,
      .reasoning_format = request.parsing.options.finds_reasoning ? context.reasoning_format : nullptr,
      .begins_in_reasoning = request.parsing.options.begins_in_reasoning,
      .content = output ? output->build : GrammarCache::Build()};
  const std::string field(output ? std::string_view(output->field) : field_of(prompt, calls));
  std::string key = key_of(tools, options, output);
  const auto build = [tools, options](GrammarBuilder& builder) {
    return add_chat_grammar(builder, tools, options);
  };
  request.form = std::make_shared<const StructuredOutput>(
      StructuredOutput{.field = field, .key = std::move(key), .build = build});
}

}  // namespace minfer
