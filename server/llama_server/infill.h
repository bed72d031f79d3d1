#pragma once

#include <memory>
#include <string_view>

#include "server/answer/answer_writer.h"
#include "server/openai/openai_request.h"

namespace minfer {

/// The request that a body of POST /infill asks for, as llama-server has it: {"input_prefix","input_suffix","input_extra",
/// "prompt","n_predict",...}. ApiError as parse_completion_request(), also where the vocabulary has no tokens for gaps, or none for
/// other files while input_extra has some.
CompletionRequest parse_infill_request(std::string_view body, const ApiContext& context);

/// Answers to POST /infill as llama-server gives them: {"content","stop":true,"model","tokens_predicted","tokens_evaluated",
/// "stop_type":"eos", "limit" or "word","stopping_word"}. Streamed: `data: {"content","stop":false}`, and a last event as the whole
/// answer, whose content is empty. `request` and what the context points to outlive them.
std::unique_ptr<AnswerStream> make_infill_stream(const CompletionRequest& request, const ApiContext& context);
std::unique_ptr<WholeAnswer> make_infill_answer(const CompletionRequest& request, const ApiContext& context);

}  // namespace minfer
