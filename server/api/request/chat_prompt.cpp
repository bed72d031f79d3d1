#include "server/api/request/chat_prompt.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "models/chat/answer/chat_grammar.h"
#include "models/chat/answer/values/literals.h"
#include "models/grammar/grammar_source.h"
#include "server/api/request/request_fields.h"

namespace minfer {
namespace {

/// Bytes that a template may put behind the text of the last message: its end-of-turn marker.
constexpr size_t kMaxMarkupBehind = 256;

/// Variables of the template itself, such as enable_thinking. Variables that the request sets elsewhere cannot be set here.
void add_template_variables(JsonFields& fields, ChatPrompt& prompt) {
  Json& variables = prompt.variables;
  const Json* object = fields.object("chat_template_kwargs");
  if (object == nullptr) return;
  for (const auto& [name, value] : object->items()) {
    if (variables.contains(name) || name == "tools" || name == "bos_token" || name == "eos_token")
      throw fields.error("chat_template_kwargs", "{} cannot be set here", describe(Json(name)));
    variables[name] = value;
    prompt.set_by.emplace_back(name, "chat_template_kwargs." + name);
  }
}

std::string read_continued_text(JsonFields& fields, const Json& variables) {
  if (!fields.boolean("continue_final_message").value_or(false)) return {};
  if (variables["add_generation_prompt"] == true)
    throw fields.error("continue_final_message", "only allowed when add_generation_prompt is false");
  const Json& last = variables["messages"].back();
  if (last["role"] != "assistant" || !last["content"].is_string() ||
      answers::trimmed(last["content"].get_ref<const std::string&>()).empty()) {
    throw fields.error("continue_final_message", "expects a last message of the assistant with a text");
  }
  return last["content"].get<std::string>();
}

std::string text_of(const std::vector<PromptPart>& parts) {
  std::string text;
  for (const PromptPart& part : parts)
    text += part.text;
  return text;
}

/// Drops the template's text behind `text`. White space at the end of `text` stays if the template kept it.
void cut_behind(std::vector<PromptPart>& parts, std::string_view text) {
  const std::string all = text_of(parts);
  const std::string_view core = answers::trimmed(text);
  const size_t earliest = all.size() - std::min(all.size(), core.size() + kMaxMarkupBehind);
  const size_t begin = std::string_view(all).substr(earliest).rfind(core);
  if (begin == std::string_view::npos)
    throw bad_request("continue_final_message",
                      "the chat template does not end with the last message's text");
  size_t end = earliest + begin + core.size();
  const std::string_view behind = text.substr(text.rfind(core) + core.size());
  if (std::string_view(all).substr(end).starts_with(behind)) end += behind.size();
  for (PromptPart& part : parts) {
    part.text.resize(std::min(part.text.size(), end));
    end -= part.text.size();
  }
}

/// A field counts as used if the template uses one of its variables.
void report_ignored(const ChatPrompt& prompt, const std::vector<std::string>& ignored, std::string_view field,
                    UnknownFields& unknown) {
  std::set<std::string> names(ignored.begin(), ignored.end());
  std::map<std::string, bool> is_used;  // by field
  for (const auto& [variable, setter] : prompt.set_by)
    is_used[setter] |= names.erase(variable) == 0;
  for (std::string name : names)
    is_used[name.starts_with("messages") ? name.replace(0, std::string_view("messages").size(), field)
                                         : name];
  for (const auto& [name, used] : is_used)
    if (!used) unknown.add_unused(name);
}

void check_tools_are_shown(const ChatPrompt& prompt, const std::vector<std::string>& ignored) {
  const ToolChoice::Kind choice = prompt.tool_choice.kind;
  if (choice != ToolChoice::Kind::required && choice != ToolChoice::Kind::named) return;
  if (std::ranges::find(ignored, "tools") == ignored.end()) return;
  throw unsupported("tool_choice",
                    "demands a call, but the model's chat template does not show it any tools");
}

RenderedChat render(const ChatPrompt& prompt, const ApiContext& context, std::string_view field) {
  try {
    return context.render_chat(prompt.variables);
  } catch (const Error& error) {
    throw bad_request(field, "the chat template refuses them: {}", error.what());
  }
}

/// The name in {"type":"function","function":{"name"}} or {"type":"function","name"}; or the same with "custom".
std::string read_tool_name(JsonFields& fields, const ShownName& shown_name) {
  const std::string type = fields.text("type").value_or("function");
  if (type != "custom" && type != "function")
    throw unsupported(fields.path("type"), "{}, only \"function\" or \"custom\" is supported",
                      describe(Json(type)));
  std::optional<std::string> name = fields.text("name");
  if (!name && shown_name && type == "custom")
    throw fields.error("name", "missing, expected the tool's name");
  if (!name) {
    const std::string_view kind = type == "custom" ? std::string_view("tool") : std::string_view(type);
    JsonFields& inner = fields.required_inner(type, fmt::format("an object with the {}'s name", kind));
    name = inner.required_text("name");
    inner.ignore_rest();
  }
  const std::string space = fields.text("namespace").value_or("");
  return shown_name ? shown_name(space, *name) : *name;
}

/// {"type":"allowed_tools","allowed_tools":{"mode","tools"}} or {"type":"allowed_tools","mode","tools"}.
ToolChoice read_allowed_tools(JsonFields& choice, const ShownName& shown_name) {
  JsonFields* inner = choice.inner("allowed_tools");
  JsonFields& fields = inner != nullptr ? *inner : choice;
  ToolChoice made;
  const std::string mode = fields.required_text("mode");
  if (mode == "required") {
    made.kind = ToolChoice::Kind::required;
  } else if (mode != "auto") {
    throw wrong_value(fields.path("mode"), Json(mode), "\"auto\" or \"required\"");
  }
  fields.each_required("tools", "tool",
                       [&](JsonFields& tool) { made.names.push_back(read_tool_name(tool, shown_name)); });
  return made;
}

using Calls = ChatGrammarOptions::Calls;

void check_can_hold(std::string_view field, const ApiContext& context) {
  if (context.grammars != nullptr) return;
  throw unsupported(field, "answers cannot be held to a grammar on this server's device");
}

/// The tools that an answer may call, out of those that the template is shown.
std::vector<ToolFunction> callable_tools(const ChatPrompt& prompt) {
  std::vector<ToolFunction> functions;
  if (!prompt.variables.contains("tools")) return functions;
  const std::vector<std::string>& chosen = prompt.tool_choice.names;
  for (const OfferedTool& tool : prompt.tools.list) {
    if (!chosen.empty() && std::ranges::find(chosen, tool.name) == chosen.end()) continue;
    functions.push_back({.name = tool.name,
                         .parameters = tool.function.value("parameters", Json()),
                         .strict = tool.is_strict,
                         .input_lark = tool.input_lark});
  }
  return functions;
}

Calls wanted_calls(const ChatPrompt& prompt, const std::vector<ToolFunction>& tools, bool holds_content) {
  if (prompt.tool_choice.kind == ToolChoice::Kind::none) return Calls::none;
  if (prompt.tool_choice.kind != ToolChoice::Kind::automatic) return Calls::required;
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
    throw bad_request("tool_choice", "the request has no tool named {}", name);
  }
}

void check_calls(const ChatPrompt& prompt, const std::vector<ToolFunction>& tools, Calls calls,
                 const ApiContext& context) {
  if (calls == Calls::none) return;
  const bool is_demanded = calls == Calls::required;
  if (is_demanded && tools.empty())
    throw bad_request("tool_choice", "demands a call, but the request has no tool");
  const std::string_view field = field_of(prompt, calls);
  if (context.call_format == nullptr)
    throw unsupported(field,
                      "calls cannot be held to a grammar: the model's chat template has none that are known, "
                      "see --tool-call-parser");
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

ToolChoice read_tool_choice(JsonFields& fields, const ShownName& shown_name) {
  const Json* found = fields.any("tool_choice");
  if (found == nullptr || *found == "auto") return {};
  if (*found == "none") return {.kind = ToolChoice::Kind::none};
  if (*found == "required") return {.kind = ToolChoice::Kind::required};
  if (!found->is_object())
    throw wrong_value("tool_choice", *found,
                      "\"auto\", \"none\", \"required\" or an object that names a function or allowed tools");
  JsonFields& choice = *fields.inner("tool_choice");
  if (choice.text("type") == "allowed_tools") return read_allowed_tools(choice, shown_name);
  return {ToolChoice::Kind::named, {read_tool_name(choice, shown_name)}};
}

void set_reasoning_effort(ChatPrompt& prompt, std::string_view effort, const std::string& field) {
  constexpr std::array<std::string_view, 6> kEfforts{"none", "minimal", "low", "medium", "high", "xhigh"};
  if (std::ranges::find(kEfforts, effort) == kEfforts.end()) return;
  const auto set = [&](const char* name, const Json& value) {
    if (prompt.variables.contains(name)) return;
    prompt.variables[name] = value;
    prompt.set_by.emplace_back(name, field);
  };
  set("reasoning_effort", effort);
  if (effort == "none") set("enable_thinking", false);
}

void read_tools(JsonFields& fields, const ToolShape& shape, const ApiContext& context, ChatPrompt& prompt) {
  prompt.tools.add(fields, shape, context);
  show_tools(prompt);
}

void show_tools(ChatPrompt& prompt) {
  if (prompt.tool_choice.kind == ToolChoice::Kind::none) return;
  for (const OfferedTool& tool : prompt.tools.list)
    prompt.variables["tools"].push_back({{"type", "function"}, {"function", tool.function}});
}

ChatPrompt read_chat_prompt(JsonFields& fields, const ApiContext& context) {
  ChatPrompt prompt;
  prompt.variables["messages"] = read_messages(fields);
  prompt.tool_choice = read_tool_choice(fields);
  read_tools(fields, kChatTools, context, prompt);
  prompt.variables["add_generation_prompt"] = fields.boolean("add_generation_prompt").value_or(true);
  prompt.continued_text = read_continued_text(fields, prompt.variables);
  prompt.add_special = fields.boolean("add_special_tokens").value_or(false);
  add_template_variables(fields, prompt);
  if (const Json* effort = fields.any("reasoning_effort"); effort != nullptr && effort->is_string())
    set_reasoning_effort(prompt, effort->get_ref<const std::string&>(), "reasoning_effort");
  prompt.output = read_structured_output(fields);
  const Json* parallel = fields.any("parallel_tool_calls");
  prompt.parsing.one_call = parallel != nullptr && *parallel == false;
  prompt.parsing.shows_reasoning = fields.boolean("include_reasoning").value_or(true);
  if (fields.any("chat_template") != nullptr)
    throw unsupported("chat_template", "a request may not bring one");
  return prompt;
}

TokenisedChat tokenise_chat(const ChatPrompt& prompt, const ApiContext& context, UnknownFields& unknown,
                            std::string_view field) {
  RenderedChat rendered = render(prompt, context, field);
  std::vector<PromptPart>& parts = rendered.parts;
  check_tools_are_shown(prompt, rendered.ignored);
  report_ignored(prompt, rendered.ignored, field, unknown);
  if (!prompt.continued_text.empty()) cut_behind(parts, prompt.continued_text);
  const std::string text = text_of(parts);
  check_text_length(field, text.size(), context);
  TokenisedChat made{.tokens = context.tokenizer->encode_parts(parts, prompt.add_special)};
  made.ends_in_reasoning =
      context.reasoning_format != nullptr && ends_in_reasoning(*context.reasoning_format, text);
  if (made.tokens.empty()) throw bad_request(field, "the prompt has no tokens");
  return made;
}

void set_chat_prompt(CompletionRequest& request, const ChatPrompt& prompt, const ApiContext& context,
                     UnknownFields& unknown) {
  TokenisedChat chat = tokenise_chat(prompt, context, unknown, request.dialect->prompt_field);
  request.ignored_fields = unknown.names();
  request.prompts.push_back(std::move(chat.tokens));
  request.tool_choice = prompt.tool_choice;
  for (const OfferedTool& tool : prompt.tools.list)
    if (tool.is_custom) request.custom_tools.insert(tool.name);
  AnswerParsing& parsing = request.parsing = prompt.parsing;
  const auto tools = prompt.variables.find("tools");
  parsing.options.finds_calls = context.finds_calls && tools != prompt.variables.end();
  if (parsing.options.finds_calls) parsing.options.tools = std::make_shared<const Json>(*tools);
  parsing.options.finds_reasoning = context.finds_reasoning;
  parsing.options.begins_in_reasoning = chat.ends_in_reasoning;
  if (context.reasoning_format != nullptr && !chat.ends_in_reasoning)
    parsing.options.open_thoughts = find_open_thoughts(*context.reasoning_format, prompt.continued_text);
  parsing.enabled =
      context.make_answer_parser && (parsing.options.finds_calls || parsing.options.finds_reasoning);
  hold_chat_answer(request, prompt, context);
  if (!parsing.enabled) return;
  // Some formats write their markers with control tokens.
  parsing.hides_special = std::exchange(request.sampling.skip_special_tokens, false);
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
  const std::string field(output ? std::string_view(output->field) : field_of(prompt, calls));
  if (!prompt.continued_text.empty())
    throw unsupported(field, "an answer that goes on with the last message cannot be held to a form");

  UnknownFields formats(false);
  for (const ToolFunction& tool : tools)
    for (const std::string& format : unknown_formats(tool.parameters))
      formats.add("tools[]", "format:" + format);
  std::ranges::copy(formats.names(), std::back_inserter(request.ignored_fields));
  ChatGrammarOptions options{
      .calls = calls,
      // One that is named is wanted once: a model that is made to call it would go on for ever.
      .several_calls = !prompt.parsing.one_call && prompt.tool_choice.kind != ToolChoice::Kind::named,
      .call_format = context.call_format,
      .reasoning_format = request.parsing.options.finds_reasoning ? context.reasoning_format : nullptr,
      .begins_in_reasoning = request.parsing.options.begins_in_reasoning,
      .content = output ? output->build : GrammarCache::Build()};
  const auto build = [tools, options](GrammarBuilder& builder) {
    return add_chat_grammar(builder, tools, options);
  };
  request.form = std::make_shared<const StructuredOutput>(
      StructuredOutput{.field = field, .key = key_of(tools, options, output), .build = build});
}

}  // namespace minfer
