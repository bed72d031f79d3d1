// POST /v1/chat/completions.
#include <fmt/format.h>

#include "server/openai/json_body.h"
#include "server/openai/openai_chat.h"
#include "server/openai/openai_fields.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// `logprobs` says whether, `top_logprobs` how many alternatives. -1: none wanted.
int32_t read_logprobs(JsonFields& fields, int32_t most) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto num_top = static_cast<int32_t>(fields.integer("top_logprobs", 0, most).value_or(0));
  if (!wanted && num_top > 0) throw fields.error("top_logprobs", "only allowed when logprobs is true");
  return wanted ? num_top : -1;
}

}  // namespace

CompletionRequest parse_chat_request(std::string_view body, const ApiContext& context) {
  const Json root = parse_json_body(body);
  UnknownFields unknown(context.refuses_unknown_fields);
  JsonFields fields(root, {}, unknown);
  CompletionRequest request;
  request.endpoint = Endpoint::chat;
  request.model = read_model(fields, context);
  read_common(fields, context, request);
  read_sampling(fields, context, request.sampling);
  read_streaming(fields, context, request);
  if (fields.boolean("echo").value_or(false)) {
    throw unsupported("echo", "echo: true, but answers to chats do not repeat their messages");
  }
  request.sampling.logprobs = read_logprobs(fields, context.limits.max_logprobs);
  const std::optional<int64_t> max_tokens = read_max_tokens(fields, 1);
  const int64_t min_tokens = fields.integer("min_tokens", 0, INT32_MAX).value_or(0);
  const ChatPrompt prompt = read_chat_prompt(fields, context);
  fields.report_unknown();

  set_chat_prompt(request, prompt, context, unknown);
  settle_lengths(request, context, max_tokens, min_tokens, INT32_MAX);
  return request;
}

}  // namespace minfer
