// POST /v1/chat/completions.
#include <array>

#include <fmt/format.h>

#include "server/openai/json_body.h"
#include "server/openai/openai_chat.h"
#include "server/openai/openai_fields.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// What OpenAI's server knows and this one has no way to do.
constexpr std::array<std::string_view, 7> kUnsupported{
    "audio",    "prediction", "functions", "function_call", "web_search_options", "reasoning_effort",
    "verbosity"};

void refuse_unsupported(JsonFields& fields) {
  for (const std::string_view name : kUnsupported) {
    if (fields.any(name) != nullptr) {
      throw unsupported(name, fmt::format("{}: not supported by this server", name));
    }
  }
  const Json* modalities = fields.array("modalities");
  if (modalities != nullptr && !(modalities->size() == 1 && modalities->front() == "text")) {
    throw unsupported("modalities", "modalities: only [\"text\"] is supported");
  }
}

/// `logprobs` says whether, `top_logprobs` how many alternatives. -1: none wanted.
int32_t read_logprobs(JsonFields& fields, int32_t most) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto num_top = static_cast<int32_t>(fields.integer("top_logprobs", 0, most).value_or(0));
  if (!wanted && num_top > 0) throw fields.error("top_logprobs", "only allowed when logprobs is true");
  return wanted ? num_top : -1;
}

/// The same number under its old and its new name.
std::optional<int64_t> read_max_tokens(JsonFields& fields) {
  const std::optional<int64_t> older = fields.integer("max_tokens", 1, INT32_MAX);
  const std::optional<int64_t> newer = fields.integer("max_completion_tokens", 1, INT32_MAX);
  if (older && newer && *older != *newer) {
    throw fields.error("max_tokens", fmt::format("{}, but max_completion_tokens is {}", *older, *newer));
  }
  return newer ? newer : older;
}

}  // namespace

CompletionRequest parse_chat_request(std::string_view body, const ApiContext& context) {
  const Json root = parse_json_body(body);
  JsonFields fields(root, {});
  CompletionRequest request;
  request.endpoint = Endpoint::chat;
  request.model = read_model(fields, context);
  read_common(fields, context, request);
  read_sampling(fields, context, request.sampling);
  read_streaming(fields, context, request);
  refuse_unsupported(fields);
  request.sampling.logprobs = read_logprobs(fields, context.limits.max_logprobs);
  const std::optional<int64_t> max_tokens = read_max_tokens(fields);
  const int64_t min_tokens = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  const ChatPrompt prompt = read_chat_prompt(fields, context);
  fields.refuse_unknown();

  request.prompts.push_back(tokenise_chat(prompt, context));
  settle_lengths(request, context, max_tokens, min_tokens, INT32_MAX);
  return request;
}

}  // namespace minfer
