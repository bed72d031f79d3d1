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

  /// A schema, or the text of one.
  void set_schema_or_text(const std::string& field, const Json& value, JsonStyle style) {
    if (!value.is_string()) return set_schema(field, value, style);
    const Json schema = Json::parse(value.get_ref<const std::string&>(), nullptr, false);
    if (schema.is_discarded()) throw bad_request(field, "not JSON, expected a JSON schema");
    set_schema(field, schema, style);
  }

  void set_json_object(std::string field, JsonStyle style) {
    set(std::move(field), fmt::format("object {}", static_cast<int>(style)),
        [style](GrammarBuilder& builder) { return add_json_object(builder, style); });
  }

  void set_regex(std::string field, std::string pattern) {
    std::string key = "regex " + pattern;
    set(std::move(field), std::move(key),
        [pattern = std::move(pattern)](GrammarBuilder& builder) { return add_regex(builder, pattern); });
  }

  /// Either GBNF, each of whose rules has a ::=, or Lark.
  void set_grammar(std::string field, std::string text) {
    const bool is_gbnf = text.find("::=") != std::string::npos;
    std::string key = (is_gbnf ? "gbnf " : "lark ") + text;
    set(std::move(field), std::move(key), [text = std::move(text), is_gbnf](GrammarBuilder& builder) {
      return is_gbnf ? add_gbnf(builder, text) : add_lark(builder, text);
    });
  }

  void set_choices(const std::string& field, const Json& list) {
    std::vector<std::string> choices;
    for (size_t i = 0; i < list.size(); ++i)
      choices.push_back(read_text(list[i], fmt::format("{}[{}]", field, i)));
    if (choices.empty()) throw bad_request(field, "empty, expected at least one text");
    set(field, "choices " + list.dump(),
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
  std::optional<JsonFields> found = fields.inner(name);
  if (!found) return;
  JsonFields& format = *found;
  const std::string type = format.required_text("type");
  if (type == "json_object") {
    const Json* schema = is_wide ? format.any("schema") : nullptr;
    schema != nullptr ? output.set_schema(format.path("schema"), *schema, JsonStyle::free)
                      : output.set_json_object(format.path(), JsonStyle::free);
  } else if (type == "json_schema") {
    std::optional<JsonFields> inner;
    if (is_wide) inner.emplace(format.required_inner("json_schema", "an object with the schema"));
    JsonFields& named = inner ? *inner : format;
    named.text("name");
    named.text("description");
    named.boolean("strict");  // the answer is held to the schema either way
    output.set_schema(named.path("schema"), named.required("schema", "a JSON schema"), JsonStyle::free);
    if (inner) inner->report_unknown();
  } else if (is_wide && type == "grammar") {
    output.set_grammar(format.path("grammar"), format.required_text("grammar"));
  } else if (type != "text") {
    throw unsupported(format.path("type"), "\"{}\", expected text, json_object{}", type,
                      is_wide ? ", json_schema or grammar" : " or json_schema");
  }
  format.report_unknown();
}

/// vLLM's object.
void read_structured_outputs(JsonFields& fields, OneOutput& output) {
  std::optional<JsonFields> found = fields.inner("structured_outputs");
  if (!found) return;
  JsonFields& parts = *found;
  const bool compact = parts.boolean("disable_any_whitespace").value_or(false);
  const JsonStyle style = compact ? JsonStyle::compact : JsonStyle::free;
  if (const Json* schema = parts.any("json")) output.set_schema_or_text(parts.path("json"), *schema, style);
  if (parts.boolean("json_object").value_or(false)) output.set_json_object(parts.path("json_object"), style);
  if (auto pattern = parts.text("regex")) output.set_regex(parts.path("regex"), std::move(*pattern));
  if (auto grammar = parts.text("grammar")) output.set_grammar(parts.path("grammar"), std::move(*grammar));
  if (const Json* choices = parts.array("choice")) output.set_choices(parts.path("choice"), *choices);
  for (const char* name : {"structural_tag", "whitespace_pattern", "disable_additional_properties"}) {
    const Json* value = parts.any(name);
    if (value != nullptr && *value != false) throw unsupported(parts.path(name), "not supported");
  }
  parts.boolean("disable_fallback");  // there is no other engine to fall back to
  parts.report_unknown();
}

/// vLLM's older fields, llama-server's and SGLang's. An empty grammar asks for nothing: llama.cpp's page sends one.
void read_single_fields(JsonFields& fields, OneOutput& output) {
  if (const Json* schema = fields.any("guided_json"))
    output.set_schema_or_text(fields.path("guided_json"), *schema, JsonStyle::free);
  if (const Json* schema = fields.any("json_schema"))
    output.set_schema_or_text(fields.path("json_schema"), *schema, JsonStyle::free);
  for (const char* name : {"guided_regex", "regex"}) {
    if (auto pattern = fields.text(name)) output.set_regex(fields.path(name), std::move(*pattern));
  }
  for (const char* name : {"guided_grammar", "grammar", "ebnf"}) {
    auto text = fields.text(name);
    if (text && !text->empty()) output.set_grammar(fields.path(name), std::move(*text));
  }
  if (const Json* choices = fields.array("guided_choice"))
    output.set_choices(fields.path("guided_choice"), *choices);
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
