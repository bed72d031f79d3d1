#pragma once

#include <memory>

#include "server/answer/answer_writer.h"

namespace minfer {

/// Answers to POST /infill as llama-server gives them: {"content","stop":true,"model","tokens_predicted","tokens_evaluated",
/// "stop_type":"eos", "limit" or "word","stopping_word"}. Streamed: `data: {"content","stop":false}`, and a last event as the whole
/// answer, whose content is empty. `request` and what the context points to outlive them.
std::unique_ptr<AnswerStream> make_infill_stream(const CompletionRequest& request, const ApiContext& context);
std::unique_ptr<WholeAnswer> make_infill_answer(const CompletionRequest& request, const ApiContext& context);

}  // namespace minfer
