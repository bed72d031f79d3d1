#pragma once

#include <string_view>

#include "server/api/request/completion_request.h"

namespace minfer {

extern const Dialect kCompletionsDialect;  ///< POST /v1/completions
extern const Dialect kChatDialect;         ///< POST /v1/chat/completions

/// Fields, ranges and fields accepted without effect: openai_request.cpp, and for all dialects server/api/request.
CompletionRequest parse_completion_request(std::string_view body, const ApiContext& context);
CompletionRequest parse_chat_request(std::string_view body, const ApiContext& context);

}  // namespace minfer
