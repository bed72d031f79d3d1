#include "profiling/json/json_text.h"
#include "server/api/answer/single_answer.h"
#include "server/api/answer/usage.h"
#include "server/dialects/llama_server/infill.h"

namespace minfer {
namespace {

std::string_view stop_type(AnswerEnd end) {
  if (end == AnswerEnd::length) return "limit";
  return end == AnswerEnd::stop_string ? "word" : "eos";
}

/// The members of a whole answer; `content` is empty at a stream's end.
void write_infill(std::string& out, const CompletionRequest& request, std::string_view content, AnswerEnd end,
                  const std::string& stop_string, const Usage& usage) {
  JsonText json(out);
  json.field("content", content).field("stop", true).field("model", request.model);
  json.field("tokens_predicted", usage.completion_tokens).field("tokens_evaluated", usage.prompt_tokens);
  json.field("stop_type", stop_type(end)).field("stopping_word", stop_string);
  if (request.timings) write_timings(json, usage);
}

class InfillStream final : public SingleStream {
 public:
  InfillStream(const CompletionRequest& request, const ResponseIdentity& /*identity*/,
               const ApiContext& context)
      : SingleStream(request, context, {}), request_(request) {}

 private:
  // The only part is the text, which nothing marks.
  void begin(std::string&) override {}
  void begin_part(std::string&) override {}
  void end_part(std::string&) override {}

  void add_text(std::string_view text, std::string& events) override {
    events += "data: {";
    JsonText(events).field("content", text).field("stop", false);
    events += kEventEnd;
  }

  void end(AnswerEnd end, const std::string& stop_string, std::string& events) override {
    events += "data: {";
    write_infill(events, request_, {}, end, stop_string, usage());
    events += kEventEnd;
  }

  void fail(const ApiError& error, std::string& events) override {
    events += "data: ";
    events += error_json(error);
    events += "\n\n";
  }

  const CompletionRequest& request_;
};

class InfillAnswer final : public SingleAnswer {
 public:
  InfillAnswer(const CompletionRequest& request, const ResponseIdentity& /*identity*/,
               const ApiContext& context)
      : SingleAnswer(request, context, {}), request_(request) {}

 private:
  std::string body(AnswerEnd end, const std::string& stop_string) override {
    std::string text = "{";
    const std::string_view content = parts().empty() ? "" : std::string_view(parts().front().text);
    write_infill(text, request_, content, end, stop_string, usage());
    return text + '}';
  }

  const CompletionRequest& request_;
};

}  // namespace

const Dialect kInfillDialect{.path = "/infill",
                             .id_prefix = "infill-",
                             .prompt_field = "prompt",
                             .is_chat = false,
                             .parse = parse_infill_request,
                             .stream = make_answer<AnswerStream, InfillStream>,
                             .whole = make_answer<WholeAnswer, InfillAnswer>};

}  // namespace minfer
