// Answers of /api/chat and /api/generate, and what clients of Ollama ask about the models of a server.
#include <algorithm>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "profiling/json/json_text.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/ollama/ollama.h"

namespace minfer {
namespace {

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
      std::string arguments(object_or_empty(part.text));
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
