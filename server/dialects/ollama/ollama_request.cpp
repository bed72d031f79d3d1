// POST /api/chat and /api/generate.
#include <algorithm>
#include <array>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/ollama/ollama.h"

namespace minfer {
namespace {

/// Fields of models that this server does not run, or of parts of an answer that it does not make.
constexpr std::array<std::string_view, 8> kOllamaUnsupported{
    "images", "template", "context", "logprobs", "width", "height", "steps", "_debug_render_only"};
/// Advice to a server that loads models on demand, or that shortens conversations. The model stays loaded. A prompt that
/// does not fit is refused.
constexpr std::array<std::string_view, 3> kOllamaAdvice{"keep_alive", "truncate", "shift"};

/// Calls that wait for results at a time. Each result looks at all of them, so that earlier ones are forgotten.
constexpr size_t kMaxOpenCalls = 256;

/// One conversation: the messages so far, and the calls without results. Calls get ids. A result belongs to the first such call
/// that has its tool_call_id or its tool_name, or to the first of all if it has neither.
class OllamaMessages {
 public:
  void add(JsonFields& fields) {
    const std::string role = fields.required_choice("role", {"system", "user", "assistant", "tool"});
    refuse_fields(fields, std::array<std::string_view, 1>{"images"});
    Json made{{"role", role}, {"content", fields.text("content").value_or("")}};
    if (role == "tool") add_result(fields, made);
    if (role == "assistant") {
      if (auto thoughts = fields.text("thinking"); thoughts && !thoughts->empty())
        made["reasoning_content"] = std::move(*thoughts);
      add_calls(fields, made);
    }
    messages_.push_back(std::move(made));
  }
  Json take() { return std::move(messages_); }

 private:
  struct OpenCall {
    std::string id;
    std::string name;
  };

  void add_calls(JsonFields& fields, Json& message) {
    fields.each("tool_calls", [&](JsonFields& call) {
      // Nine letters and digits: some templates take no other ids.
      std::string id = call.text("id").value_or(fmt::format("call{:05}", num_calls_++));
      call.any("type");
      JsonFields function = call.required_inner("function");
      const std::string name = function.required_text("name");
      const Json* arguments = function.object("arguments");
      function.any("index");  // the list's order counts
      function.report_unknown();
      message["tool_calls"].push_back(
          make_call(id, name, arguments == nullptr ? Json::object() : *arguments));
      open_.push_back({std::move(id), name});
      if (open_.size() > kMaxOpenCalls) open_.pop_front();
    });
    if (message.contains("tool_calls") && message["content"] == "") message["content"] = nullptr;
  }

  void add_result(JsonFields& fields, Json& message) {
    const std::optional<std::string> id = fields.text("tool_call_id");
    const std::optional<std::string> name = fields.text("tool_name");
    const auto call = std::ranges::find_if(
        open_, [&](const OpenCall& open) { return id ? open.id == *id : !name || open.name == *name; });
    const bool is_known = call != open_.end();
    message["tool_call_id"] = id ? *id : is_known ? call->id : "call00000";
    if (name || is_known) message["name"] = name ? *name : call->name;
    if (is_known) open_.erase(call);
  }

  Json messages_ = Json::array();
  std::deque<OpenCall> open_;
  int num_calls_ = 0;
};

/// A body with the fields that both endpoints have.
struct OllamaBody : RequestBody {
  OllamaBody(const Dialect& dialect, std::string_view body, const ApiContext& api)
      : RequestBody(dialect, body, api), context(api) {
    SamplingParams& sampling = request.sampling;
    if (options.integer("seed", INT64_MIN, INT64_MAX) == -1) sampling.seed.reset();
    if (const auto penalty = options.number("repeat_penalty", 0.01, 100.0))
      sampling.repetition_penalty = static_cast<float>(*penalty);
    num_predict = options.integer("num_predict", -2, INT32_MAX).value_or(-1);
    num_ctx = options.integer("num_ctx", 1, INT32_MAX).value_or(INT32_MAX);
    refuse_windowed_penalties();
    if (options.number("typical_p", 0.0, 1.0).value_or(1.0) != 1.0)
      throw unsupported("options.typical_p", "not supported, expected 1");
    refuse_fields(fields, kOllamaUnsupported);
    fields.any("top_logprobs");  // without logprobs it has no effect in Ollama either
    for (const std::string_view name : kOllamaAdvice)
      if (is_on(fields.any(name))) unknown.add_unused(name);
  }

  /// Ends the reading of fields.
  void report_unknown() const {
    options.report_unknown();
    fields.report_unknown();
  }

  /// think: true, false, or an effort.
  void read_think(ChatPrompt& prompt) {
    const Json* think = fields.any("think");
    if (think == nullptr) return;
    if (!think->is_boolean()) {
      const std::string& effort = read_text(*think, "think");
      set_reasoning_effort(prompt, effort == "max" ? "xhigh" : effort, "think");
      if (prompt.variables.contains("reasoning_effort")) return;
      throw wrong_value("think", *think, "true, false, low, medium, high or max");
    }
    prompt.variables["enable_thinking"] = *think;
    prompt.set_by.emplace_back("enable_thinking", "think");
  }

  CompletionRequest finish(const ChatPrompt& prompt) {
    report_unknown();
    set_chat_prompt(request, prompt, context, unknown);
    return settle();
  }

  /// Both numbers are bounds. 0 and less: as many tokens as there is room for.
  CompletionRequest settle() {
    const auto num_tokens = static_cast<int64_t>(request.prompts.front().size());
    if (num_tokens >= num_ctx)
      throw context_length_exceeded(
          "options.num_ctx",
          fmt::format("options.num_ctx: {}, but the prompt has {} tokens", num_ctx, num_tokens));
    settle_bound(request, context, num_predict <= 0 ? std::nullopt : std::optional(num_predict), num_ctx);
    return std::move(request);
  }

  const ApiContext& context;
  int64_t num_predict;
  int64_t num_ctx;

 private:
  /// Penalties look at all tokens here. 0 tokens: at none.
  void refuse_windowed_penalties() {
    SamplingParams& sampling = request.sampling;
    const auto window = options.integer("repeat_last_n", -1, INT32_MAX);
    if (window == 0) {
      sampling.repetition_penalty = 1.0f;
      sampling.presence_penalty = sampling.frequency_penalty = 0.0f;
    }
    const bool has_penalty = sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
                             sampling.frequency_penalty != 0.0f;
    if (window.value_or(-1) != -1 && has_penalty)
      throw unsupported("options.repeat_last_n", "{}, expected -1: penalties look at all tokens", *window);
  }
};

/// The prompt as it stands, or the texts around a gap.
std::vector<TokenId> tokenise_plain(const std::string& text, const std::string& suffix,
                                    const ApiContext& context) {
  check_text_length("prompt", text.size() + suffix.size(), context);
  if (!suffix.empty())
    return context.tokenizer->encode_parts(gap_parts(text, suffix, *context.tokenizer, "suffix"));
  std::vector<TokenId> ids = context.tokenizer->encode(text, {.add_special = true, .parse_special = true});
  if (ids.empty()) throw bad_request("prompt", "the prompt has no tokens");
  return ids;
}

}  // namespace

CompletionRequest parse_ollama_chat(std::string_view body, const ApiContext& context) {
  OllamaBody read(kOllamaChatDialect, body, context);
  if (read.fields.required_array("messages").empty())
    throw read.fields.error("messages", "empty, expected at least one message (the model is loaded)");
  OllamaMessages messages;
  read.fields.each("messages", [&](JsonFields& message) { messages.add(message); });
  ChatPrompt prompt;
  prompt.variables["messages"] = messages.take();
  prompt.tool_choice = read_tool_choice(read.fields);  // which Ollama does not have
  read_tools(read.fields, kChatTools, context, prompt);
  prompt.variables["add_generation_prompt"] = true;
  prompt.output = read_bare_format(read.fields, "format");
  read.read_think(prompt);
  return read.finish(prompt);
}

CompletionRequest parse_ollama_generate(std::string_view body, const ApiContext& context) {
  OllamaBody read(kOllamaGenerateDialect, body, context);
  JsonFields& fields = read.fields;
  const std::string text = fields.text("prompt").value_or("");
  if (text.empty()) throw fields.error("prompt", "empty, expected a text (the model is loaded)");
  const std::string system = fields.text("system").value_or("");
  const std::string suffix = fields.text("suffix").value_or("");
  ChatPrompt prompt;
  prompt.output = read_bare_format(fields, "format");
  const bool is_raw = fields.boolean("raw").value_or(false);
  if (is_raw || !suffix.empty()) {
    refuse_fields(fields, std::array<std::string_view, 2>{"system", "think"});  // of the chat template
    read.report_unknown();
    read.request.ignored_fields = read.unknown.names();
    read.request.prompts.push_back(tokenise_plain(text, suffix, context));
    hold_completion(read.request, prompt.output, context);
    return read.settle();
  }
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  prompt.variables["messages"] = std::move(messages);
  prompt.variables["add_generation_prompt"] = true;
  prompt.set_by.emplace_back("messages[].role:system", "system");
  read.read_think(prompt);
  return read.finish(prompt);
}

}  // namespace minfer
