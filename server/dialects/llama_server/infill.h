#pragma once

#include <string_view>

#include "server/api/request/completion_request.h"

namespace minfer {

/// llama-server's /infill. An answer: {"content","stop":true,"model","tokens_predicted","tokens_evaluated","stop_type":"eos", "limit"
/// or "word","stopping_word"}. Streamed: `data: {"content","stop":false}`, and a last event like the whole answer, with empty content.
extern const Dialect kInfillDialect;

/// The request in a body of POST /infill, as llama-server has it: {"input_prefix","input_suffix","input_extra",
/// "prompt","n_predict",...}. Throws ApiError as parse_completion_request() does, and if the vocabulary has no
/// tokens for gaps, or none for other files while input_extra has some.
CompletionRequest parse_infill_request(std::string_view body, const ApiContext& context);

}  // namespace minfer
