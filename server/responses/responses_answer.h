#pragma once

#include <memory>

#include "server/answer/answer_writer.h"

namespace minfer {

// Answers of /v1/responses: an output item for each stretch of reasoning, text or call. They are kept in ApiContext::responses when
// they are whole, if the request wants that. `request` and what the context points to outlive them.

/// Events with sequence numbers: response.created, response.in_progress, those of each item, and response.completed,
/// response.incomplete or response.failed.
std::unique_ptr<AnswerStream> make_responses_stream(const CompletionRequest& request,
                                                    const ResponseIdentity& identity,
                                                    const ApiContext& context);
std::unique_ptr<WholeAnswer> make_responses_answer(const CompletionRequest& request,
                                                   const ResponseIdentity& identity,
                                                   const ApiContext& context);

}  // namespace minfer
