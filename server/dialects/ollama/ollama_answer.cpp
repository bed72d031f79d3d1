#include <algorithm>

#include <fmt/chrono.h>

#include "profiling/json/json_text.h"
#include "server/api/answer/single_answer.h"
#include "server/api/answer/usage.h"
#include "server/dialects/ollama/ollama.h"

namespace minfer {
namespace {

/// Writes the objects of one answer. The request outlives it. One thread.
class OllamaRecords {
 public:
  OllamaRecords(const CompletionRequest& request, const ResponseIdentity& identity)
      : request_(request), created_at_(ollama_time(identity.created)) {}

  /// An object with the texts and the whole calls among `parts`; `end`: the members behind them.
  void write(std::string& out, std::string_view content, std::string_view thinking,
             std::span<const AnswerPart> parts, const std::string& end = ",\"done\":false") {
    const bool is_chat = request_.dialect == &kOllamaChatDialect;
    out += '{';
    JsonText json(out);
    json.field("model", request_.model).field("created_at", created_at_);
    if (is_chat) json.key("message").open('{').field("role", std::string_view("assistant"));
    json.field(is_chat ? "content" : "response", content);
    if (!thinking.empty()) json.field("thinking", thinking);
    write_calls(out, parts);
    if (is_chat) out += '}';
    out += end + '}';
  }

  /// The members behind the text of the last object.
  std::string end_json(AnswerEnd end, const Usage& usage) const {
    std::string text = ",\"done\":true";
    JsonText json(text);
    json.field("done_reason", std::string_view(end == AnswerEnd::length ? "length" : "stop"));
    const AnswerTimes& times = usage.times;
    json.field("total_duration", times.queue_ns + times.prompt_ns + times.predicted_ns);
    json.field("load_duration", times.queue_ns).field("prompt_eval_count", usage.prompt_tokens);
    json.field("prompt_eval_duration", times.prompt_ns).field("eval_count", usage.completion_tokens);
    json.field("eval_duration", times.predicted_ns);
    if (request_.timings) write_timings(json, usage);
    return text;
  }

 private:
  void write_calls(std::string& out, std::span<const AnswerPart> parts) {
    JsonText json(out);
    bool is_open = false;
    for (const AnswerPart& part : parts) {
      if (part.kind != AnswerPart::Kind::call || !part.whole) continue;
      if (!std::exchange(is_open, true)) json.key("tool_calls").open('[');
      json.open('{').field("id", part.id).key("function").open('{').field("index", num_calls_++);
      json.field("name", part.name).key("arguments");
      std::string arguments(object_or_empty(part.text));
      // An object is one line. Texts in JSON hold no raw line ends, so these stand between its tokens.
      std::ranges::replace_if(
          arguments, [](char c) { return c == '\n' || c == '\r'; }, ' ');
      out += arguments;
      json.close('}').close('}');
    }
    if (is_open) json.close(']');
  }

  const CompletionRequest& request_;
  const std::string created_at_;
  int64_t num_calls_ = 0;
};

class OllamaStream final : public SingleStream {
 public:
  OllamaStream(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context)
      : SingleStream(request, context, "call_"), records_(request, identity) {}

  std::string idle_event() const override {
    std::string text;
    OllamaRecords(records_).write(text, {}, {}, {});
    return text + '\n';
  }

 private:
  void begin(std::string&) override {}
  void begin_part(std::string&) override {}
  void add_text(std::string_view text, std::string& events) override {
    const AnswerPart::Kind kind = parts().back().kind;
    if (kind == AnswerPart::Kind::call) return;
    const bool is_content = kind == AnswerPart::Kind::content;
    add(is_content ? text : "", is_content ? "" : text, {}, events);
  }
  void end_part(std::string& events) override {
    const AnswerPart& part = parts().back();
    if (part.kind == AnswerPart::Kind::call && part.whole) add({}, {}, {&part, 1}, events);
  }
  void end(AnswerEnd end, const std::string&, std::string& events) override {
    records_.write(events, {}, {}, {}, records_.end_json(end, usage()));
    events += '\n';
  }
  void fail(const ApiError& error, std::string& events) override {
    events += ollama_error_json(error) + '\n';
  }

  void add(std::string_view content, std::string_view thinking, std::span<const AnswerPart> calls,
           std::string& events) {
    records_.write(events, content, thinking, calls);
    events += '\n';
  }

  OllamaRecords records_;
};

class OllamaAnswer final : public SingleAnswer {
 public:
  OllamaAnswer(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context)
      : SingleAnswer(request, context, "call_"), records_(request, identity) {}

 private:
  std::string body(AnswerEnd end, const std::string&) override {
    std::string text;
    records_.write(text, this->text(AnswerPart::Kind::content), this->text(AnswerPart::Kind::reasoning),
                   parts(), records_.end_json(end, usage()));
    return text;
  }

  OllamaRecords records_;
};

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
          .stream = make_answer<AnswerStream, OllamaStream>,
          .whole = make_answer<WholeAnswer, OllamaAnswer>,
          .error = ollama_error_json,
          .others = others};
}

}  // namespace

std::string ollama_error_json(const ApiError& error) {
  std::string text;
  JsonText json(text);
  json.open('{').field("error", std::string_view(error.what())).close('}');
  return text;
}

std::string ollama_time(int64_t unix_s) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(static_cast<std::time_t>(unix_s)));
}

constinit const Dialect kOllamaChatDialect =
    ollama_dialect("/api/chat", "messages", parse_ollama_chat, kOllamaEndpoints);
constinit const Dialect kOllamaGenerateDialect =
    ollama_dialect("/api/generate", "prompt", parse_ollama_generate);

}  // namespace minfer
