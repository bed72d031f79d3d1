#pragma once

#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "models/grammar/grammar_cache.h"
#include "server/api/fields/api_error.h"
#include "server/api/fields/json_fields.h"

namespace minfer {

/// The form that a request wants for its answer: the texts that the answer may be.
struct StructuredOutput {
  std::string field;  ///< full name of the field that asks for it
  std::string key;    ///< everything that the grammar depends on
  GrammarCache::Build build;
};

/// From `response_format` (json_object, json_schema; text asks for nothing), vLLM's `structured_outputs` and `guided_*`,
/// llama-server's `grammar` and `json_schema`, SGLang's `regex` and `ebnf`. Absent: the answer is free. Throws ApiError (400)
/// if more than one of them asks for something (`given`: a field of the API's own does), and for anything else in them.
std::optional<StructuredOutput> read_structured_output(JsonFields& fields,
                                                       std::optional<StructuredOutput> given = std::nullopt);

/// The same for an object `name` that holds the schema itself: OpenAI's `text.format` and Anthropic's `output_config.format`.
std::optional<StructuredOutput> read_text_format(JsonFields& fields, std::string_view name);

/// The same for a field that is "json" (any object) or the schema itself, as Ollama's `format`. Empty: it asks for nothing.
std::optional<StructuredOutput> read_bare_format(JsonFields& fields, std::string_view name);

/// The reason that its grammar was not made: a keyword that cannot be honoured is a 400 that names the field and the place in it.
ApiError refusal_of(const StructuredOutput& output, const std::exception_ptr& error);

}  // namespace minfer
