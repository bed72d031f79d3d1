// Any bytes as the body of a request: the result is a request within the limits that the engine accepts, or
// an ApiError with a status below 500 and valid JSON. Byte 0 chooses the endpoint.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/dialects/anthropic/messages.h"
#include "server/dialects/llama_server/infill.h"
#include "server/dialects/ollama/ollama.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/responses/responses_request.h"
#include "tests/fuzz/require.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

/// Names of ignored fields can be written to a header.
void check_names(const std::vector<std::string>& names) {
  REQUIRE(names.size() <= 17);
  for (const std::string& name : names) {
    REQUIRE(!name.empty() && name.size() <= 80);
    for (const char c : name)
      REQUIRE(c > ' ' && c < '\x7f' && c != ',');
  }
}

void check_request(const CompletionRequest& request, const ApiContext& context) {
  request.sampling.validate(context.vocab_size);
  check_names(request.ignored_fields);
  REQUIRE(request.num_choices() >= 1 && request.num_choices() <= context.limits.max_choices);
  REQUIRE(!request.echo || request.prompt_texts.size() == request.prompts.size());
  for (const std::vector<TokenId>& prompt : request.prompts) {
    REQUIRE(!prompt.empty() && prompt.size() < static_cast<size_t>(context.max_model_len));
    for (const TokenId id : prompt)
      REQUIRE(id >= 0 && id < context.vocab_size);
  }
}

void check_body(uint8_t endpoint, std::string_view body, const ApiContext& context) {
  UnknownFields unknown(false);
  switch (static_cast<uint8_t>(endpoint - '0') % 11) {
    case 0:
      check_request(parse_completion_request(body, context), context);
      break;
    case 1:
      check_request(parse_chat_request(body, context), context);
      break;
    case 2:
      REQUIRE(nlohmann::json::accept(tokenize_response(body, context, unknown)));
      break;
    case 3:
      REQUIRE(nlohmann::json::accept(detokenize_response(body, context, unknown)));
      break;
    case 4:
      REQUIRE(nlohmann::json::accept(count_tokens_response(body, context, unknown)));
      break;
    case 5:
      check_request(parse_responses_request(body, context), context);
      break;
    case 6:
      check_request(parse_messages_request(body, context), context);
      break;
    case 7:
      check_request(parse_infill_request(body, context), context);
      break;
    case 8:
      check_request(parse_ollama_chat(body, context), context);
      break;
    case 9:
      check_request(parse_ollama_generate(body, context), context);
      break;
    default:
      REQUIRE(nlohmann::json::accept(ollama_show_response(body, context, unknown)));
  }
  check_names(unknown.names());
}

}  // namespace
}  // namespace minfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const minfer::test::TestApi api(minfer::test::gap_vocabulary(true));
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    minfer::check_body(data[0], body, api.context);
  } catch (const minfer::ApiError& error) {
    REQUIRE(error.status() == 400 || error.status() == 404);
    REQUIRE(nlohmann::json::accept(minfer::error_json(error)));
    REQUIRE(nlohmann::json::accept(minfer::messages_error_json(error)));
    REQUIRE(nlohmann::json::accept(minfer::ollama_error_json(error)));
  }
  return 0;
}
