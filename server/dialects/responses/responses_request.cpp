// POST /v1/responses.
#include "server/dialects/responses/responses_request.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "models/chat/answer/custom_input.h"
#include "models/gguf/printable.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/responses/response_store.h"

namespace minfer {
namespace {

/// Smaller histories do not count as bodies do.
constexpr size_t kCountedBytes = 1u << 20;

constexpr std::array<std::string_view, 1> kLaterTools{"defer_loading"};  // all are shown at once
constexpr ToolShape kResponsesTools{.has_spaces = true, .advice = kLaterTools};

void refuse_responses_fields(JsonFields& fields) {
  fields.refuse({"conversation", "prompt", "background"});
  constexpr const char* kLogprobs = "message.output_text.logprobs";
  const Json* include = fields.array("include");
  const bool wants_logprobs = include != nullptr && std::ranges::find(*include, kLogprobs) != include->end();
  if (wants_logprobs || fields.integer("top_logprobs", 0, INT32_MAX).value_or(0) > 0)
    throw unsupported("top_logprobs", "not supported here; /v1/chat/completions has them");
}

/// Empty: the request names none.
std::string read_effort(JsonFields& fields) {
  JsonFields* const reasoning = fields.inner("reasoning");
  if (reasoning == nullptr) return {};
  std::string effort = reasoning->text("effort").value_or("");
  reasoning->ignore_rest();
  return effort;
}

std::optional<StructuredOutput> read_text_format(JsonFields& fields) {
  JsonFields* const text = fields.inner("text");
  if (text == nullptr) return std::nullopt;
  text->any("verbosity");
  return read_text_format(*text, "format");
}

Json read_history(JsonFields& fields, const ApiContext& context) {
  const std::optional<std::string> id = fields.text("previous_response_id");
  if (!id) return Json::array();
  const auto stored = context.responses == nullptr ? nullptr : context.responses->find(*id);
  if (!stored) throw response_not_found(*id, "previous_response_id");
  if (stored->history_bytes() > context.limits.max_history_bytes) {
    throw context_length_exceeded(
        "previous_response_id",
        fmt::format("previous_response_id: its conversation has {} bytes, expected at most {}",
                    stored->history_bytes(), context.limits.max_history_bytes));
  }
  return Json::parse(fmt::format("{},{}]", *stored->history, stored->answer));
}

/// The members of the response that repeat the request's.
std::string echo_members(JsonFields& fields, const CompletionRequest& request, const ChatPrompt& prompt,
                         const std::string& effort, const Json& tools, bool store) {
  const auto given = [&](std::string_view name, const Json& otherwise = nullptr) {
    const Json* value = fields.any(name);
    return value == nullptr ? otherwise : *value;
  };
  Json members;
  for (const char* name : {"instructions", "max_output_tokens", "previous_response_id", "user"})
    members[name] = given(name);
  members["metadata"] = given("metadata", Json::object());
  members["parallel_tool_calls"] = !prompt.parsing.one_call;
  members["reasoning"] = {{"effort", effort.empty() ? Json() : Json(effort)}, {"summary", nullptr}};
  members["store"] = store;
  // As the client wrote them, not as the doubles that are nearest to the floats.
  members["temperature"] = Json::parse(fmt::format("{}", request.sampling.temperature));
  members["top_p"] = Json::parse(fmt::format("{}", request.sampling.top_p));
  members["text"] = given("text", {{"format", {{"type", "text"}}}});
  members["tool_choice"] = given("tool_choice", "auto");
  members["tools"] = tools;
  members["truncation"] = "disabled";
  if (request.service_tier) members["service_tier"] = "default";
  std::string text = dump_json(members);
  text.front() = ',';
  text.pop_back();
  return text;
}

constexpr std::pair<std::string_view, std::string_view> kInputTexts[] = {{"input_text", "text"},
                                                                         {"output_text", "text"}};
constexpr std::pair<std::string_view, std::string_view> kThoughts[] = {{"reasoning_text", "text"},
                                                                       {"summary_text", "text"}};
constexpr std::array<std::string_view, 2> kOfAnswers{"annotations", "logprobs"};

/// One conversation: the messages so far, and the functions by the ids of their calls, which templates name with results.
class InputReader {
 public:
  InputReader(Json history, OfferedTools& tools, const ApiContext& context)
      : tools_(tools), context_(context), messages_(std::move(history)) {
    for (const Json& message : messages_) {
      if (!message.contains("tool_calls")) continue;
      for (const Json& call : message["tool_calls"])
        functions_[call["id"].get<std::string>()] = call["function"]["name"].get<std::string>();
    }
  }

  /// Consecutive messages of one side become one: many templates take only turns that alternate.
  void add_message(const std::string& role, const std::string& text) {
    const bool may = role == "user" || (role == "assistant" && thoughts_.empty());
    const bool goes_on = may && !messages_.empty() && messages_.back()["role"] == role &&
                         !messages_.back().contains("tool_calls");
    if (!goes_on) return messages_.push_back({{"role", role}, {"content", text}});
    join_line(messages_.back()["content"].get_ref<std::string&>(), text);
  }

  void add(JsonFields& fields) {
    const std::optional<std::string> given = fields.text("type");
    const std::string type = given ? *given : fields.any("role") != nullptr ? "message" : "item_reference";
    fields.ignore({"id", "status"});  // of answers
    if (type == "web_search_call" || type == "tool_search_call") {
      // Items of another server's tools: the client has no text of them, so a template could show nothing.
      fields.unknown().add(fields.path(), type);
      fields.ignore_rest();
    } else if (type == "message") {
      read_message(fields);
    } else if (type == "reasoning") {
      read_reasoning(fields);
    } else if (type == "function_call") {
      read_call(fields, read_arguments(fields.required_text("arguments")));
    } else if (type == "custom_tool_call") {
      read_call(fields, {{kCustomInput, fields.required_text("input")}});
    } else if (type == "function_call_output" || type == "custom_tool_call_output") {
      read_result(fields);
    } else if (type == "additional_tools" || type == "tool_search_output") {
      read_tools(fields);
    } else {
      throw unsupported(fields.path("type"),
                        "{}, expected message, reasoning, function_call or function_call_output",
                        minfer::describe(type));
    }
  }

  /// Thoughts without a following message say nothing to a template.
  Json take() { return std::move(messages_); }

 private:
  void read_message(JsonFields& fields) {
    const std::string role = fields.required_choice("role", {"user", "assistant", "system", "developer"});
    const std::string text = read_texts(fields, "content", kInputTexts, kOfAnswers);
    fields.any("phase");
    if (role != "assistant") return add_message(role == "developer" ? "system" : role, text);
    add_message(role, text);
    add_thoughts(messages_.back());
  }

  void read_reasoning(JsonFields& fields) {
    const Json* content = fields.array("content");
    const Json* summary = fields.array("summary");
    fields.any("encrypted_content");  // which nobody here can read
    const bool has_content = content != nullptr && !content->empty();
    const Json* shown = has_content ? content : summary;
    if (shown == nullptr) return;
    join_line(thoughts_, read_texts(fields, has_content ? "content" : "summary", kThoughts, kOfAnswers));
  }

  /// A call belongs to the message of the same turn, if there is one. Calls of custom tools have a text instead of arguments.
  void read_call(JsonFields& fields, Json arguments) {
    const std::string id = fields.required_text("call_id");
    const std::string name =
        tools_.shown_name(fields.text("namespace").value_or(""), fields.required_text("name"));
    functions_[id] = name;
    if (messages_.empty() || messages_.back()["role"] != "assistant")
      messages_.push_back({{"role", "assistant"}, {"content", nullptr}});
    add_thoughts(messages_.back());
    messages_.back()["tool_calls"].push_back(make_call(id, name, std::move(arguments)));
  }

  void read_result(JsonFields& fields) {
    const std::string id = fields.required_text("call_id");
    Json message{{"role", "tool"},
                 {"content", read_texts(fields, "output", kInputTexts, kOfAnswers)},
                 {"tool_call_id", id}};
    if (const auto found = functions_.find(id); found != functions_.end()) message["name"] = found->second;
    messages_.push_back(std::move(message));
  }

  /// Tools that appear among the items. Templates have one place for all of them.
  void read_tools(JsonFields& fields) {
    fields.ignore({"role", "call_id", "execution"});  // of searches
    fields.required_array("tools");
    tools_.add(fields, kResponsesTools, context_);
  }

  void add_thoughts(Json& message) {
    if (!thoughts_.empty()) message["reasoning_content"] = std::exchange(thoughts_, {});
  }

  OfferedTools& tools_;
  const ApiContext& context_;
  Json messages_;
  std::string thoughts_;  ///< that belong to the message or the call that comes next
  std::map<std::string, std::string> functions_;
};

/// `input` behind the messages of `history`, for the template: a text, or items. The items of one turn
/// of the assistant (reasoning, message, function_call) become one message. Tools in items are added to
/// `tools`. Throws ApiError for items that are not text: images, files, calls of the server's tools.
Json read_responses_input(JsonFields& fields, Json history, OfferedTools& tools, const ApiContext& context) {
  InputReader reader(std::move(history), tools, context);
  const Json& input = fields.required("input", "a string or an array of items");
  if (input.is_string()) {
    reader.add_message("user", input.get<std::string>());
    return reader.take();
  }
  if (!input.is_array()) throw wrong_value("input", input, "a string or an array of items");
  fields.each("input", [&](JsonFields& item) { reader.add(item); });
  Json messages = reader.take();
  if (messages.empty()) throw fields.error("input", "empty, expected at least one item");
  return messages;
}

/// `messages` behind the instructions. If they begin with a system message, it is joined to the instructions: templates know one.
Json with_instructions(const std::string& instructions, Json messages) {
  std::string text = instructions;
  size_t first = 0;
  while (first < messages.size() && messages[first]["role"] == "system")
    join_line(text, messages[first++]["content"].get_ref<const std::string&>());
  if (text.empty()) return messages;
  Json made = Json::array();
  made.push_back({{"role", "system"}, {"content", text}});
  for (; first < messages.size(); ++first)
    made.push_back(std::move(messages[first]));
  return made;
}

}  // namespace

ApiError response_not_found(std::string_view id, std::string_view param) {
  return {404,
          fmt::format("Response with id '{}' not found: this server has none of that id, or has dropped it",
                      printable(id)),
          std::string(param), "response_not_found"};
}

bool has_long_history(std::string_view body, const ApiContext& context) try {
  constexpr size_t kLongBytes = 64u << 10;  // as of a body, see HttpRequest::has_large_body()
  const Json root = parse_json_body(body);
  const auto id = root.find("previous_response_id");
  if (context.responses == nullptr || id == root.end() || !id->is_string()) return false;
  const auto stored = context.responses->find(id->get_ref<const std::string&>());
  return stored != nullptr && stored->history_bytes() > kLongBytes;
} catch (const std::exception&) {
  return false;  // which the request is then answered with
}

CompletionRequest parse_responses_request(std::string_view body, const ApiContext& context) {
  RequestBody read(kResponsesDialect, body, context);
  auto& [root, unknown, fields, options, request] = read;
  refuse_responses_fields(fields);
  const std::optional<int64_t> max_tokens = fields.integer("max_output_tokens", 1, INT32_MAX);
  // Advice to a server that keeps, bills, routes or cuts by it, or that runs tools: without effect here.
  fields.ignore({"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
                 "prompt_cache_options", "service_tier", "truncation", "max_tool_calls", "moderation"});
  request.service_tier = fields.any("service_tier") != nullptr;

  auto kept = std::make_shared<ResponsesRequest>();
  kept->store = fields.boolean("store").value_or(true) && context.responses != nullptr;
  ChatPrompt prompt;
  OfferedTools& tools = prompt.tools;
  tools.add(fields, kResponsesTools, context);
  const Json given_tools = tools.given;
  Json messages = read_responses_input(fields, read_history(fields, context), tools, context);
  if (kept->store) {
    std::string text = dump_json(messages);
    text.pop_back();  // the bracket: see StoredResponse
    kept->history = std::make_shared<const std::string>(std::move(text));
  }
  if (kept->history && kept->history->size() >= kCountedBytes) request.held_bytes = kept->history->size();
  for (const OfferedTool& tool : tools.list)
    if (!tool.space.empty()) kept->spaces[tool.name] = {tool.space, tool.own_name};
  prompt.variables["messages"] =
      with_instructions(fields.text("instructions").value_or(""), std::move(messages));
  prompt.tool_choice = read_tool_choice(fields, [&tools](std::string_view space, const std::string& name) {
    return tools.shown_name(space, name);
  });
  prompt.output = read_structured_output(fields, read_text_format(fields));
  show_tools(prompt);
  prompt.parsing.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
  const std::string effort = read_effort(fields);
  set_reasoning_effort(prompt, effort, "reasoning.effort");
  kept->members = echo_members(fields, request, prompt, effort, given_tools, kept->store);
  read.end_fields();
  request.responses = std::move(kept);
  set_chat_prompt(request, prompt, context, unknown);
  settle_lengths(request, context, max_tokens, 0, INT32_MAX);
  return std::move(request);
}

}  // namespace minfer
