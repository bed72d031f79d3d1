#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "models/grammar/grammar_cache.h"
#include "server/api/fields/api_error.h"
#include "server/api/fields/json_fields.h"

namespace minfer {

/// How a request wants its answer to be written: the texts that it may be.
struct StructuredOutput {
  std::string field;  ///< that asks for it, by its full name
  std::string key;    ///< all that the grammar depends on
  GrammarCache::Build build;
};

/// From `response_format` (json_object, json_schema; text asks for nothing), vLLM's `structured_outputs` and `guided_*`, llama-server's
/// `grammar` and `json_schema`, SGLang's `regex` and `ebnf`. Absent: the answer is free. Throws ApiError (400) if more than one asks for
/// something (`given`: a field of the API's own has), and for what is none of these.
std::optional<StructuredOutput> read_structured_output(JsonFields& fields,
                                                       std::optional<StructuredOutput> given = std::nullopt);

/// The same of an object `name` with the schema in itself: OpenAI's `text.format` and Anthropic's `output_config.format`.
std::optional<StructuredOutput> read_text_format(JsonFields& fields, std::string_view name);

/// Why its grammar was not made: what that cannot honour is a 400 that names the field and the place in it.
ApiError refusal_of(const StructuredOutput& output, const std::exception_ptr& error);

}  // namespace minfer
