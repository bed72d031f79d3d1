// POST /api/chat and /api/generate, and what clients of Ollama ask about the models of a server.
#include "server/dialects/ollama/ollama.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "profiling/json/json_text.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"

namespace minfer {
namespace {

/// Calls that wait for results at a time. Each result looks at all of them, so that earlier ones are forgotten.
constexpr size_t kMaxOpenCalls = 256;

/// One conversation: the messages so far, and the calls without results. Calls get ids. A result belongs to the first such call
/// that has its tool_call_id or its tool_name, or to the first of all if it has neither.
class OllamaMessages {
 public:
  void add(JsonFields& fields) {
    const std::string role = fields.required_choice("role", {"system", "user", "assistant", "tool"});
    fields.refuse({"images"});
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
      JsonFields& function = call.required_inner("function");
      const std::string name = function.required_text("name");
      const Json* arguments = function.object("arguments");
      function.any("index");  // the list's order counts
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
    // Fields of models that this server does not run, or of parts of an answer that it does not make.
    fields.refuse(
        {"images", "template", "context", "logprobs", "width", "height", "steps", "_debug_render_only"});
    fields.any("top_logprobs");  // without logprobs it has no effect in Ollama either
    // Advice to a server that loads models on demand, or that shortens conversations. The model stays loaded. A prompt that
    // does not fit is refused.
    for (const char* name : {"keep_alive", "truncate", "shift"})
      if (is_on(fields.any(name))) unknown.add_unused(name);
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
    end_fields();
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

constexpr std::string_view kOllamaTag = ":latest";  // which may stand behind a model's name

/// RFC 3339, UTC.
std::string ollama_time(int64_t unix_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

class OllamaWriter final : public SingleWriter {
 public:
  using SingleWriter::SingleWriter;

  void add_text(std::string_view text, std::string& events) override {
    const AnswerPart::Kind kind = parts().back().kind;
    if (kind == AnswerPart::Kind::call) return;
    const bool is_content = kind == AnswerPart::Kind::content;
    events += record(is_content ? text : "", is_content ? "" : text, {}) + '\n';
  }
  void end_part(std::string& events) override {
    const AnswerPart& part = parts().back();
    if (part.kind == AnswerPart::Kind::call && part.whole) events += record({}, {}, {&part, 1}) + '\n';
  }
  void end(AnswerEnd end, std::string& events) override { events += record({}, {}, {}, end) + '\n'; }
  void fail(const ApiError& error, std::string& events) override {
    events += ollama_error_json(error) + '\n';
  }
  std::string idle_event() const override { return record({}, {}, {}) + '\n'; }
  std::string body(AnswerEnd end) override {
    return record(text(AnswerPart::Kind::content), text(AnswerPart::Kind::reasoning), parts(), end);
  }

 private:
  /// An object with the texts and the whole calls among `given`; `end`: it is the last one.
  std::string record(std::string_view content, std::string_view thinking, std::span<const AnswerPart> given,
                     std::optional<AnswerEnd> end = {}) const {
    const bool is_chat = request_.dialect == &kOllamaChatDialect;
    std::string out;
    JsonText json(out);
    json.open('{').field("model", request_.model).field("created_at", created_at_);
    if (is_chat) json.key("message").open('{').field("role", "assistant");
    json.field(is_chat ? "content" : "response", content);
    if (!thinking.empty()) json.field("thinking", thinking);
    write_calls(out, given);
    if (is_chat) json.close('}');
    json.field("done", end.has_value());
    if (end) write_end(json, *end);
    json.close('}');
    return out;
  }

  void write_calls(std::string& out, std::span<const AnswerPart> given) const {
    const auto is_call = [](const AnswerPart& part) { return part.kind == AnswerPart::Kind::call; };
    JsonText json(out);
    bool is_open = false;
    for (const AnswerPart& part : given) {
      if (!is_call(part) || !part.whole) continue;
      if (!std::exchange(is_open, true)) json.key("tool_calls").open('[');
      json.open('{').field("id", part.id).key("function").open('{');
      json.field("index", int64_t{std::count_if(parts().data(), &part, is_call)}).field("name", part.name);
      // An object is one line. Texts in JSON hold no raw line ends, so these stand between its tokens.
      std::string arguments = request_.custom_tools.contains(part.name)
                                  ? Json{{kCustomInput, part.text}}.dump()
                                  : std::string(object_or_empty(part.text));
      std::ranges::replace_if(
          arguments, [](char c) { return c == '\n' || c == '\r'; }, ' ');
      json.key("arguments");
      out += arguments;
      json.close('}').close('}');
    }
    if (is_open) json.close(']');
  }

  void write_end(JsonText& json, AnswerEnd end) const {
    const Usage total = usage();
    const AnswerTimes& times = total.times;
    json.field("done_reason", end == AnswerEnd::length ? "length" : "stop");
    json.field("total_duration", times.queue_ns + times.prompt_ns + times.predicted_ns);
    json.field("load_duration", times.queue_ns).field("prompt_eval_count", total.prompt_tokens);
    json.field("prompt_eval_duration", times.prompt_ns).field("eval_count", total.completion_tokens);
    json.field("eval_duration", times.predicted_ns);
    if (request_.timings) write_timings(json, total);
  }

  const std::string created_at_ = ollama_time(identity_.created);
};

Json details_of(const ModelFacts& facts) {
  const auto size = static_cast<double>(facts.num_parameters);
  constexpr double kBillion = 1e9;
  constexpr double kMillion = 1e6;
  return {{"format", "gguf"},
          {"family", facts.architecture},
          {"families", Json::array({facts.architecture})},
          {"parameter_size", size < kBillion ? fmt::format("{:.1f}M", size / kMillion)
                                             : fmt::format("{:.1f}B", size / kBillion)},
          {"quantization_level", facts.dtype}};
}

/// Each served name.
template <bool kOnlyLoaded>
std::string list_models(std::string_view, const ApiContext& context, UnknownFields&) {
  Json models = Json::array();
  for (const ListedModel& listed : context.models()) {
    if (kOnlyLoaded && !listed.is_loaded()) continue;
    const ApiContext& model = *listed.model;
    for (const std::string& served : model.served_model_names) {
      const std::string name =
          served.find(':') == std::string::npos ? served + std::string(kOllamaTag) : served;
      models.push_back({{"name", name},
                        {"model", name},
                        {"modified_at", ollama_time(model.created)},
                        {"size", model.model.bytes},
                        {"details", details_of(model.model)},
                        {"context_length", model.max_model_len}});
    }
  }
  return dump_json({{"models", std::move(models)}});
}

}  // namespace

CompletionRequest parse_ollama_chat(std::string_view body, const ApiContext& context) {
  OllamaBody read(kOllamaChatDialect, body, context);
  OllamaMessages messages;
  read.fields.each_required("messages", "message (the model is loaded)",
                            [&](JsonFields& message) { messages.add(message); });
  ChatPrompt prompt;
  prompt.variables["messages"] = messages.take();
  prompt.tool_choice = read_tool_choice(read.fields);  // which Ollama does not have
  read_tools(read.fields, kChatTools, context, prompt);
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
    fields.refuse({"system", "think"});  // of the chat template
    read.end_fields();
    read.request.prompts.push_back(tokenise_text(text, suffix, "prompt", context, true));
    hold_completion(read.request, prompt.output, context);
    return read.settle();
  }
  Json messages = Json::array();
  if (!system.empty()) messages.push_back({{"role", "system"}, {"content", system}});
  messages.push_back({{"role", "user"}, {"content", text}});
  prompt.variables["messages"] = std::move(messages);
  prompt.set_by.emplace_back("messages[].role:system", "system");
  read.read_think(prompt);
  return read.finish(prompt);
}

std::string ollama_error_json(const ApiError& error) {
  return dump_json({{"error", error.what()}});
}

std::string ollama_show_response(std::string_view body, const ApiContext& context, UnknownFields& unknown) {
  Json root = parse_json_body(body);
  // The older name of the field.
  if (const Json older = root.value("name", Json()); !root.contains("model") && !older.is_null())
    root.erase("name"), root["model"] = older;
  JsonFields fields(root, {}, unknown);
  read_model(fields, context, kOllamaTag);
  fields.report_unknown();
  Json capabilities = Json::array({"completion"});
  if (context.finds_calls) capabilities.push_back("tools");
  if (context.finds_reasoning) capabilities.push_back("thinking");
  if (context.tokenizer->fim_tokens().complete()) capabilities.push_back("insert");
  const ModelFacts& facts = context.model;
  return dump_json({{"modified_at", ollama_time(context.created)},
                    {"details", details_of(facts)},
                    {"model_info",
                     {{"general.architecture", facts.architecture},
                      {"general.parameter_count", facts.num_parameters},
                      {facts.architecture + ".context_length", context.max_model_len}}},
                    {"capabilities", capabilities}});
}

namespace {

constexpr Endpoint kOllamaEndpoints[] = {
    {"GET", "/api/tags", list_models<false>},
    {"POST", "/api/show", ollama_show_response},
    {"GET", "/api/ps", list_models<true>},
    {"GET", "/api/version", [](std::string_view, const ApiContext&, UnknownFields&) {
       return std::string("{\"version\":\"" MINFER_VERSION "\"}");
     }}};

constexpr Dialect ollama_dialect(std::string_view path, std::string_view prompt_field,
                                 CompletionRequest (*parse)(std::string_view, const ApiContext&),
                                 std::span<const Endpoint> others = {}) {
  return {.path = path,
          .id_prefix = "ollama-",
          .prompt_field = prompt_field,
          .options = "options",
          .model_tag = kOllamaTag,
          .streams = true,
          .stream_type = "application/x-ndjson",
          .errors_below = "/api/",
          .parse = parse,
          .answer = make_answer<OllamaWriter>,
          .error = ollama_error_json,
          .others = others};
}

}  // namespace

constinit const Dialect kOllamaChatDialect =
    ollama_dialect("/api/chat", "messages", parse_ollama_chat, kOllamaEndpoints);
constinit const Dialect kOllamaGenerateDialect =
    ollama_dialect("/api/generate", "prompt", parse_ollama_generate);

}  // namespace minfer
