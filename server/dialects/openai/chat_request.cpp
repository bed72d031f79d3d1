// POST /v1/chat/completions.
#include <utility>

#include <fmt/format.h>

#include "server/api/fields/json_body.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/openai/completions.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// `logprobs` says if logprobs are wanted, `top_logprobs` how many alternatives. -1: none wanted.
int32_t read_logprobs(JsonFields& fields, int32_t most) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto num_top = static_cast<int32_t>(fields.integer("top_logprobs", 0, most).value_or(0));
  if (!wanted && num_top > 0) throw fields.error("top_logprobs", "only allowed when logprobs is true");
  return wanted ? num_top : -1;
}

}  // namespace

CompletionRequest parse_chat_request(std::string_view body, const ApiContext& context) {
  RequestBody read(kChatDialect, body, context);
  JsonFields& fields = read.fields;
  UnknownFields& unknown = read.unknown;
  CompletionRequest& request = read.request;
  read_common(fields, context, request);
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
  return std::move(request);
}

}  // namespace minfer
