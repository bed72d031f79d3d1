#pragma once

#include <memory>
#include <string>

#include "server/answer/single_answer.h"

namespace minfer {

// Answers of /v1/messages, in the form of Anthropic's API. `request` and what the context points to outlive them.

/// Events: message_start, ping, for each block content_block_start, content_block_delta ..., content_block_stop, then message_delta
/// and message_stop.
std::unique_ptr<AnswerStream> make_messages_stream(const CompletionRequest& request,
                                                   const ResponseIdentity& identity,
                                                   const ApiContext& context);
std::unique_ptr<WholeAnswer> make_messages_answer(const CompletionRequest& request,
                                                  const ResponseIdentity& identity,
                                                  const ApiContext& context);

/// {"type":"error","error":{"type","message"}}: the type follows from the status.
std::string messages_error_json(const ApiError& error);

}  // namespace minfer
