#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "server/api/fields/json_fields.h"
#include "server/api/request/api_context.h"
#include "server/api/request/completion_request.h"

namespace minfer {

/// A tool of a namespace, by the two names that the client knows it by.
struct SpacedFunction {
  std::string space;
  std::string name;
};
/// Such tools by the name that the model is shown.
using FunctionSpaces = std::map<std::string, SpacedFunction, std::less<>>;

/// What the answer of /v1/responses needs of its request beside what all answers need.
struct ResponsesRequest {
  std::string
      members;  ///< of the response, JSON: "instructions", "tools", "temperature" ... as the request has them
  std::shared_ptr<const std::string> history;  ///< its messages but for the instructions: see StoredResponse
  FunctionSpaces spaces;                       ///< of its tools
  bool store = true;                           ///< the response is kept in ApiContext::responses
};

/// OpenAI's /v1/responses. An answer has an output item for each stretch of reasoning, text or call. Events of a stream, with sequence
/// numbers: response.created, response.in_progress, those of each item, then response.completed, response.incomplete or response.failed.
/// Whole answers stay in ApiContext::responses, if the request wants that.
extern const Dialect kResponsesDialect;

/// A request to /v1/responses, translated into what the chat template and the engine need; with previous_response_id behind the
/// conversation of that response. ApiError as in parse_completion_request(); 404 for a previous response that is not there.
CompletionRequest parse_responses_request(std::string_view body, const ApiContext& context);

/// Whether a small body goes on with a conversation whose reading may take long. Never throws.
bool has_long_history(std::string_view body, const ApiContext& context);

/// 404: no such response, or no longer.
ApiError response_not_found(std::string_view id, std::string_view param);

class ResponsesTools;

/// `input` behind the messages of `history`, for the template: a text, or items. What one turn of the assistant gave as several items
/// (reasoning, message, function_call) is one message. Tools that come up in items are added to `tools`. ApiError for items that are no
/// text: images, files, calls of the server's tools.
nlohmann::ordered_json read_responses_input(JsonFields& fields, nlohmann::ordered_json history,
                                            ResponsesTools& tools);

/// `messages` behind the instructions. A system message that they begin with goes on with those: templates know one.
nlohmann::ordered_json with_instructions(const std::string& instructions, nlohmann::ordered_json messages);

}  // namespace minfer
