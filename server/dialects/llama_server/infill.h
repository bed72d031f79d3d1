#pragma once

#include <string_view>

#include "server/api/request/completion_request.h"

namespace minfer {

/// llama-server's /infill. An answer: {"content","stop":true,"model","tokens_predicted","tokens_evaluated","stop_type":"eos", "limit" or
/// "word","stopping_word"}. Streamed: `data: {"content","stop":false}`, and a last event as the whole answer, whose content is empty.
extern const Dialect kInfillDialect;

/// The request that a body of POST /infill asks for, as llama-server has it: {"input_prefix","input_suffix","input_extra",
/// "prompt","n_predict",...}. ApiError as parse_completion_request(), also where the vocabulary has no tokens for gaps, or none for
/// other files while input_extra has some.
CompletionRequest parse_infill_request(std::string_view body, const ApiContext& context);

}  // namespace minfer
