#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/fields/json_fields.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// The parts of a request that the answer of /v1/responses needs, beside those that all answers need.
struct ResponsesRequest {
  std::string
      members;  ///< of the response, JSON: "instructions", "tools", "temperature" ... as the request has them
  std::shared_ptr<const std::string> history;  ///< its messages without the instructions: see StoredResponse
  /// Namespace and own name of its tools that have a namespace, by the names that the model is shown.
  std::map<std::string, std::pair<std::string, std::string>> spaces;
  bool store = true;  ///< the response is kept in ApiContext::responses
};

/// OpenAI's /v1/responses. An answer has an output item for each stretch of reasoning, text or call. Events of a stream,
/// with sequence numbers: response.created, response.in_progress, the events of each item, then response.completed,
/// response.incomplete or response.failed. Whole answers stay in ApiContext::responses if the request wants that.
extern const Dialect kResponsesDialect;

/// A request to /v1/responses, translated for the chat template and the engine. With previous_response_id it follows that
/// response's conversation. Throws ApiError as parse_completion_request() does; 404 if the previous response is not there.
CompletionRequest parse_responses_request(std::string_view body, const ApiContext& context);

/// True if a small body continues a conversation that may take long to read. Never throws.
bool has_long_history(std::string_view body, const ApiContext& context);

/// 404: no such response, or no longer.
ApiError response_not_found(std::string_view id, std::string_view param);

}  // namespace minfer
