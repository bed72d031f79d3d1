// POST /infill: the text between two others.
#include "server/dialects/llama_server/infill.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "profiling/json/json_text.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/request_fields.h"

namespace minfer {
namespace {

// Markers of a repository's other files, as code models know them. Names that
// nobody gave are llama-server's, so that its clients' prompts are the same here.
constexpr const char* kRepositoryToken = "<|repo_name|>";
constexpr const char* kFileToken = "<|file_sep|>";
constexpr const char* kRepositoryName = "myproject\n";
constexpr const char* kGapFileName = "filename\n";
constexpr const char* kOtherFileName = "tmp";

bool has_token(const Tokenizer& tokenizer, std::string_view text) {
  return tokenizer.encode(text, {.add_special = false, .parse_special = true}).size() == 1;
}

/// The text in front of the gap's own file: the other files.
std::vector<PromptPart> read_other_files(JsonFields& fields, const ApiContext& context) {
  const Json* list = fields.array("input_extra");
  if (list == nullptr || list->empty()) return {};
  if (!has_token(*context.tokenizer, kRepositoryToken) || !has_token(*context.tokenizer, kFileToken))
    throw unsupported("input_extra", "the model has no tokens {} and {}", kRepositoryToken, kFileToken);
  std::vector<PromptPart> parts{{kRepositoryToken, true}, {kRepositoryName, false}};
  fields.each("input_extra", [&](JsonFields& file) {
    const std::string name = file.text("filename").value_or(kOtherFileName);
    parts.push_back({kFileToken, true});
    parts.push_back({fmt::format("{}\n{}", name, file.required_text("text")), false});
  });
  parts.push_back({kFileToken, true});
  parts.push_back({kGapFileName, false});
  return parts;
}

std::vector<PromptPart> read_gap(JsonFields& fields, const ApiContext& context) {
  std::string before = fields.required_text("input_prefix");
  std::string behind = fields.required_text("input_suffix");
  before += fields.text("prompt").value_or("");
  std::vector<PromptPart> gap =
      gap_parts(std::move(before), std::move(behind), *context.tokenizer, "input_prefix");
  std::vector<PromptPart> parts = read_other_files(fields, context);
  std::ranges::move(gap, std::back_inserter(parts));
  return parts;
}

std::vector<TokenId> tokenise_parts(const std::vector<PromptPart>& parts, const ApiContext& context) {
  size_t bytes = 0;
  for (const PromptPart& part : parts)
    bytes += part.text.size();
  check_text_length("prompt", bytes, context);
  return context.tokenizer->encode_parts(parts);
}

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

/// The only part is the text, which nothing marks.
class InfillWriter final : public SingleWriter {
 public:
  using SingleWriter::SingleWriter;

  void add_text(std::string_view text, std::string& events) override {
    events += "data: {";
    JsonText(events).field("content", text).field("stop", false);
    events += kEventEnd;
  }
  void end(AnswerEnd end, std::string& events) override {
    events += "data: {";
    write_infill(events, request_, {}, end, stop_string_, usage());
    events += kEventEnd;
  }
  void fail(const ApiError& error, std::string& events) override {
    events += "data: " + error_json(error) + "\n\n";
  }
  std::string body(AnswerEnd end) override {
    std::string out = "{";
    write_infill(out, request_, text(AnswerPart::Kind::content), end, stop_string_, usage());
    return out + '}';
  }
};

}  // namespace

CompletionRequest parse_infill_request(std::string_view body, const ApiContext& context) {
  RequestBody read(kInfillDialect, body, context);
  auto& [root, unknown, fields, options, request] = read;
  // llama-server's clients ask this way for a seed that differs each time.
  if (fields.integer("seed", INT64_MIN, INT64_MAX) == -1) request.sampling.seed.reset();
  const int64_t wanted = fields.integer("n_predict", -1, INT32_MAX).value_or(-1);
  if (wanted == 0) throw fields.error("n_predict", "0, expected -1 or at least 1");
  const std::vector<PromptPart> parts = read_gap(fields, context);
  read.end_fields();

  request.prompts.push_back(tokenise_parts(parts, context));
  settle_bound(request, context, wanted == -1 ? std::nullopt : std::optional(wanted));
  return std::move(request);
}

const Dialect kInfillDialect{.path = "/infill",
                             .id_prefix = "infill-",
                             .prompt_field = "prompt",
                             .is_chat = false,
                             .parse = parse_infill_request,
                             .answer = make_answer<InfillWriter>};

}  // namespace minfer
