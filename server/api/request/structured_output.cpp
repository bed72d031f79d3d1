#include "server/api/request/structured_output.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/grammar/grammar_source.h"

namespace minfer {
namespace {

/// Collects the form that fields ask for; a second one is an error.
class OneOutput {
 public:
  explicit OneOutput(UnknownFields& unknown, std::optional<StructuredOutput> given = std::nullopt)
      : unknown_(unknown), output_(std::move(given)) {}

  void set(std::string field, std::string key, GrammarCache::Build build) {
    if (output_) throw bad_request(field, "the answer's form is given by {} already", output_->field);
    output_ = StructuredOutput{std::move(field), std::move(key), std::move(build)};
  }

  void set_schema(std::string field, const Json& schema, JsonStyle style) {
    if (!schema.is_object() && !schema.is_boolean())
      throw wrong_value(field, schema, "a JSON schema: an object, true or false");
    for (const std::string& format : unknown_formats(schema))
      unknown_.add(field, "format:" + format);
    std::string key = fmt::format("schema {} {}", static_cast<int>(style), schema.dump());
    set(std::move(field), std::move(key),
        [schema, style](GrammarBuilder& builder) { return add_json_schema(builder, schema, style); });
  }

  /// From a field, if it is there: a schema, or the text of one.
  void read_schema(JsonFields& fields, std::string_view name, JsonStyle style) {
    const Json* value = fields.any(name);
    if (value == nullptr) return;
    if (!value->is_string()) return set_schema(fields.path(name), *value, style);
    const Json schema = Json::parse(value->get_ref<const std::string&>(), nullptr, false);
    if (schema.is_discarded()) throw fields.error(name, "not JSON, expected a JSON schema");
    set_schema(fields.path(name), schema, style);
  }

  void set_json_object(std::string field, JsonStyle style) {
    set(std::move(field), fmt::format("object {}", static_cast<int>(style)),
        [style](GrammarBuilder& builder) { return add_json_object(builder, style); });
  }

  void read_regex(JsonFields& fields, std::string_view name) {
    const std::optional<std::string> pattern = fields.text(name);
    if (!pattern) return;
    set(fields.path(name), "regex " + *pattern,
        [pattern](GrammarBuilder& builder) { return add_regex(builder, *pattern); });
  }
  /// Either GBNF, each of whose rules has a ::=, or Lark.
  void read_grammar(JsonFields& fields, std::string_view name) {
    const std::optional<std::string> text = fields.text(name);
    if (!text) return;
    const bool is_gbnf = text->find("::=") != std::string::npos;
    set(fields.path(name), (is_gbnf ? "gbnf " : "lark ") + *text, [text, is_gbnf](GrammarBuilder& builder) {
      return is_gbnf ? add_gbnf(builder, *text) : add_lark(builder, *text);
    });
  }
  void read_choices(JsonFields& fields, std::string_view name) {
    const Json* list = fields.array(name);
    if (list == nullptr) return;
    const std::string field = fields.path(name);
    std::vector<std::string> choices;
    for (size_t i = 0; i < list->size(); ++i)
      choices.push_back(read_text((*list)[i], fmt::format("{}[{}]", field, i)));
    if (choices.empty()) throw bad_request(field, "empty, expected at least one text");
    set(field, "choices " + list->dump(),
        [choices = std::move(choices)](GrammarBuilder& builder) { return add_choices(builder, choices); });
  }

  std::optional<StructuredOutput> take() { return std::move(output_); }

 private:
  UnknownFields& unknown_;
  std::optional<StructuredOutput> output_;
};

/// An object with a type and, of json_schema, a schema. `is_wide`: OpenAI's response_format, where the schema stands in a member
/// `json_schema`, with llama-server's additions: `schema` of json_object, and grammars.
void read_format(JsonFields& fields, std::string_view name, bool is_wide, OneOutput& output) {
  JsonFields* const found = fields.inner(name);
  if (found == nullptr) return;
  JsonFields& format = *found;
  const std::string type = format.required_text("type");
  if (type == "json_object") {
    const Json* schema = is_wide ? format.any("schema") : nullptr;
    schema != nullptr ? output.set_schema(format.path("schema"), *schema, JsonStyle::free)
                      : output.set_json_object(format.path(), JsonStyle::free);
  } else if (type == "json_schema") {
    JsonFields& named = is_wide ? format.required_inner("json_schema", "an object with the schema") : format;
    named.text("name");
    named.text("description");
    named.boolean("strict");  // the answer is held to the schema either way
    output.set_schema(named.path("schema"), named.required("schema", "a JSON schema"), JsonStyle::free);
  } else if (is_wide && type == "grammar") {
    format.required("grammar", "a string");
    output.read_grammar(format, "grammar");
  } else if (type != "text") {
    throw unsupported(format.path("type"), "\"{}\", expected text, json_object{}", type,
                      is_wide ? ", json_schema or grammar" : " or json_schema");
  }
}

/// vLLM's object.
void read_structured_outputs(JsonFields& fields, OneOutput& output) {
  JsonFields* const found = fields.inner("structured_outputs");
  if (found == nullptr) return;
  JsonFields& parts = *found;
  const bool compact = parts.boolean("disable_any_whitespace").value_or(false);
  const JsonStyle style = compact ? JsonStyle::compact : JsonStyle::free;
  output.read_schema(parts, "json", style);
  if (parts.boolean("json_object").value_or(false)) output.set_json_object(parts.path("json_object"), style);
  output.read_regex(parts, "regex");
  output.read_grammar(parts, "grammar");
  output.read_choices(parts, "choice");
  for (const char* name : {"structural_tag", "whitespace_pattern", "disable_additional_properties"}) {
    const Json* value = parts.any(name);
    if (value != nullptr && *value != false) throw unsupported(parts.path(name), "not supported");
  }
  parts.boolean("disable_fallback");  // there is no other engine to fall back to
}

/// vLLM's older fields, llama-server's and SGLang's. An empty grammar asks for nothing: llama.cpp's page sends one.
void read_single_fields(JsonFields& fields, OneOutput& output) {
  for (const char* name : {"guided_json", "json_schema"})
    output.read_schema(fields, name, JsonStyle::free);
  for (const char* name : {"guided_regex", "regex"})
    output.read_regex(fields, name);
  for (const char* name : {"guided_grammar", "grammar", "ebnf"})
    if (const Json* text = fields.any(name); text != nullptr && *text != "")
      output.read_grammar(fields, name);
  output.read_choices(fields, "guided_choice");
  fields.text("guided_decoding_backend");  // there is one
  if (fields.any("guided_whitespace_pattern") != nullptr)
    throw unsupported("guided_whitespace_pattern", "not supported");
}

}  // namespace

std::optional<StructuredOutput> read_structured_output(JsonFields& fields,
                                                       std::optional<StructuredOutput> given) {
  OneOutput output(fields.unknown(), std::move(given));
  read_format(fields, "response_format", true, output);
  read_structured_outputs(fields, output);
  read_single_fields(fields, output);
  return output.take();
}

std::optional<StructuredOutput> read_text_format(JsonFields& fields, std::string_view name) {
  OneOutput output(fields.unknown());
  read_format(fields, name, false, output);
  return output.take();
}

std::optional<StructuredOutput> read_bare_format(JsonFields& fields, std::string_view name) {
  const Json* value = fields.any(name);
  if (value == nullptr || *value == "") return std::nullopt;
  OneOutput output(fields.unknown());
  if (*value == "json") {
    output.set_json_object(fields.path(name), JsonStyle::free);
  } else if (value->is_object()) {
    output.set_schema(fields.path(name), *value, JsonStyle::free);
  } else {
    throw wrong_value(fields.path(name), *value, "\"json\" or a JSON schema");
  }
  return output.take();
}

ApiError refusal_of(const StructuredOutput& output, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const GrammarError& refused) {
    return bad_request(output.field, "{}", refused.what());
  } catch (const GrammarsFull& full) {
    return ApiError(429, full.what());
  } catch (const std::exception& other) {
    return ApiError(500, other.what());
  }
}

}  // namespace minfer
