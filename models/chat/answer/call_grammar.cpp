#include "models/chat/answer/call_grammar.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"
#include "models/chat/answer/custom_input.h"
#include "models/chat/answer/values/tool_types.h"
#include "models/grammar/grammar.h"
#include "models/grammar/grammar_source.h"

namespace minfer::answers {
namespace {

using Expr = GrammarBuilder::Expr;
using Json = nlohmann::ordered_json;

constexpr JsonStyle kStyle = JsonStyle::free;

/// The schema of one parameter; null where nothing is said of it.
struct Parameter {
  std::string key;
  Json schema;
  bool is_required = false;
};

std::vector<Parameter> parameters_in(const Json& schema) {
  std::vector<Parameter> parameters;
  if (!schema.is_object()) return parameters;
  const auto properties = schema.find("properties");
  if (properties == schema.end() || !properties->is_object()) return parameters;
  const auto required = schema.find("required");
  for (const auto& [key, value] : properties->items()) {
    const bool is_required = required != schema.end() && required->is_array() &&
                             std::ranges::find(*required, Json(key)) != required->end();
    parameters.push_back({key, value, is_required});
  }
  return parameters;
}

bool is_of_type(const Json& schema, std::string_view type) {
  return schema.is_object() && schema.value("type", Json()) == Json(type);
}

/// Adds the `$defs` of the whole schema to a part, since references in the part need them.
Json with_definitions(Json part, const Json& whole) {
  for (const char* name : {"$defs", "definitions"}) {
    if (part.is_object() && whole.is_object() && whole.contains(name) && !part.contains(name))
      part[name] = whole[name];
  }
  return part;
}

/// The values that a schema lists; empty: it lists none.
std::vector<Json> listed_values(const Json& schema) {
  if (!schema.is_object()) return {};
  if (schema.contains("const")) return {schema["const"]};
  const Json values = schema.value("enum", Json());
  return values.is_array() ? std::vector<Json>(values.begin(), values.end()) : std::vector<Json>();
}

/// True if no value of this schema is a string.
bool is_no_text(const Json& schema) {
  const JsonTypes types = types_of(schema);
  return types != kAnyType && (types & kString) == 0;
}

/// True if a text between tags is read back unchanged; white space at its ends would be lost.
bool is_bare_text(const Json& value) {
  constexpr std::string_view kSpace = " \t\r\n";
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) return false;
  const std::string& text = value.get_ref<const std::string&>();
  return kSpace.find(text.front()) == std::string_view::npos &&
         kSpace.find(text.back()) == std::string_view::npos;
}

/// A count of characters that a text may have; `otherwise` where none is given that an automaton would hold.
int64_t length_in(const Json& schema, const char* keyword, int64_t otherwise) {
  if (!schema.is_object()) return otherwise;
  const auto found = schema.find(keyword);
  const bool is_count = found != schema.end() && found->is_number_integer() && *found >= 0 && *found <= 5'000;
  return is_count ? found->get<int64_t>() : otherwise;
}

std::string json_string(std::string_view text) {
  return Json(text).dump();
}

class CallGrammar {
 public:
  CallGrammar(GrammarBuilder& builder, const std::vector<ToolFunction>& tools, const CallOpening& opening,
              bool several)
      : builder_(builder), tools_(tools), opening_(opening), several_(several) {}

  Expr calls() {
    if (const auto* json = std::get_if<JsonCallSyntax>(&opening_.syntax)) return json_calls(*json);
    if (const auto* named = std::get_if<NamedCallSyntax>(&opening_.syntax)) return named_calls(*named);
    if (const auto* tagged = std::get_if<TaggedCallSyntax>(&opening_.syntax)) return tagged_calls(*tagged);
    return pythonic_calls(std::get<PythonicCallSyntax>(opening_.syntax));
  }

  Expr harmony_call() {
    return any_tool([&](const ToolFunction& tool) {
      return builder_.join(marker("<|channel|>"), "commentary to=functions." + tool.name + " ",
                           marker("<|constrain|>"), "json", marker("<|message|>"), arguments_of(tool));
    });
  }

 private:
  Expr marker(std::string_view text) { return answers::marker(builder_, text); }

  Expr white_space() {
    return builder_.choice({builder_.empty(), builder_.literal(" "), builder_.literal("\n")});
  }

  /// One or more.
  Expr list_of(Expr item, std::string_view separator) {
    if (!several_) return item;
    const Expr more = builder_.join(separator, white_space(), item);
    return builder_.sequence({item, builder_.any_number(more)});
  }

  template <class Make>
  Expr any_tool(const Make& make) {
    std::vector<Expr> alternatives;
    for (const ToolFunction& tool : tools_)
      alternatives.push_back(make(tool));
    return builder_.choice(alternatives);
  }

  /// The texts of the schema. A schema that cannot be honoured is refused for a strict tool; for other tools it allows any value.
  Expr schema_or_any(const ToolFunction& tool, const Json& schema, const std::string& path) {
    try {
      return add_json_schema(builder_, schema, kStyle, path);
    } catch (const GrammarError& error) {
      if (tool.strict) fail<GrammarError>("tool {}: {}", tool.name, error.what());
      return add_json_value(builder_, kStyle);
    }
  }

  /// The text of a custom tool, as a JSON string.
  Expr input_text(const ToolFunction& tool) {
    try {
      const Expr text = add_lark(builder_, tool.input_lark, Spelling::json_string);
      return builder_.join("\"", text, "\"");
    } catch (const GrammarError& error) {
      fail<GrammarError>("tool {}: {}", tool.name, error.what());
    }
  }

  Expr arguments_of(const ToolFunction& tool) {
    if (!tool.input_lark.empty()) {
      return builder_.join("{", white_space(), json_string(kCustomInput), ":", white_space(),
                           input_text(tool), white_space(), "}");
    }
    if (tool.parameters.is_null()) return add_json_object(builder_, kStyle);
    Json schema = tool.parameters;
    if (schema.is_object() && !schema.contains("type"))
      schema["type"] = "object";  // arguments are nothing else
    try {
      return add_json_schema(builder_, schema, kStyle, "parameters");
    } catch (const GrammarError& error) {
      if (tool.strict) fail<GrammarError>("tool {}: {}", tool.name, error.what());
      return add_json_object(builder_, kStyle);
    }
  }

  /// {"name": NAME, ARGUMENTS_KEY: {...}}
  Expr json_call(std::string_view arguments_key) {
    return any_tool([&](const ToolFunction& tool) {
      return builder_.join("{", white_space(), "\"name\":", white_space(), json_string(tool.name), ",",
                           white_space(), json_string(arguments_key), ":", white_space(), arguments_of(tool),
                           white_space(), "}");
    });
  }

  /// One object between two markers, which several calls repeat; where nothing closes them, objects or a list of them.
  Expr json_calls(const JsonCallSyntax& syntax) {
    const Expr call = json_call(syntax.is_bare ? "parameters" : "arguments");
    const Expr list = builder_.join(white_space(), list_of(call, ","), white_space(), "]");
    if (syntax.is_list) return builder_.sequence({marker(opening_.marker), list});
    if (!syntax.close.empty()) {
      const Expr one = builder_.sequence(
          {marker(opening_.marker), white_space(), call, white_space(), marker(syntax.close)});
      return list_of(one, "");
    }
    const Expr calls = list_of(call, ";");
    if (syntax.is_bare) return calls;
    return builder_.sequence(
        {marker(opening_.marker), white_space(), builder_.choice({calls, builder_.join("[", list)})});
  }

  /// The headers of NamedCallReader; where a model could write several, each of them.
  Expr named_call(const NamedCallSyntax& syntax) {
    const Expr separator = marker(syntax.separator);
    return any_tool([&](const ToolFunction& tool) {
      const Expr name = builder_.literal(tool.name), arguments = arguments_of(tool);
      const Expr plain = builder_.sequence({name, separator, arguments});
      if (syntax.call_open.empty()) return plain;
      const Expr fenced = builder_.join("function", separator, name, "\n```json\n", arguments, "\n```");
      const Expr numbered = builder_.join(
          "functions.", name, ":", builder_.repeat(builder_.byte('0', '9'), 1, 3), separator, arguments);
      return builder_.choice({plain, fenced, numbered});
    });
  }

  Expr named_calls(const NamedCallSyntax& syntax) {
    if (!syntax.quote.empty())
      fail<GrammarError>("calls that begin with {} cannot be held to a grammar", opening_.marker);
    const Expr call =
        builder_.sequence({marker(syntax.call_open), named_call(syntax), marker(syntax.call_close)});
    if (syntax.close.empty())
      return list_of(builder_.sequence({marker(opening_.marker), white_space(), call}), "");
    return builder_.sequence(
        {marker(opening_.marker), white_space(), list_of(call, ""), white_space(), marker(syntax.close)});
  }

  /// A text between tags, which stands as it is: no quotes, no escapes.
  Expr tagged_text(const TaggedCallSyntax& syntax, const ToolFunction& tool, const std::string& key,
                   const Json& schema) {
    if (!tool.input_lark.empty())
      fail<GrammarError>("tool {}: the model's format of calls cannot hold a text to a Lark grammar",
                         tool.name);
    constexpr std::array<std::string_view, 9> kHeld = {"type",      "title",     "description",
                                                       "default",   "examples",  "$comment",
                                                       "minLength", "maxLength", "definitions"};
    const std::vector<Json> values = listed_values(schema);
    if (!values.empty() && std::ranges::all_of(values, is_bare_text))
      return add_choices(builder_, Json(values).get<std::vector<std::string>>());
    for (const auto& [keyword, value] : schema.items()) {
      const bool is_held = keyword == "type"
                               ? value == "string"
                               : keyword == "$defs" || std::ranges::find(kHeld, keyword) != kHeld.end();
      if (tool.strict && !is_held) {
        fail<GrammarError>(
            "tool {}: parameters.properties.{}: {}: the model's format of calls cannot hold a text to it",
            tool.name, key, keyword);
      }
    }
    const Expr text = text_without(builder_, std::array{syntax.value_close});
    const int64_t least = length_in(schema, "minLength", 0), most = length_in(schema, "maxLength", -1);
    if (least == 0 && most < 0) return text;
    return builder_.both(text, builder_.repeat(builder_.characters({{0, 0x10ffff}}), least, most));
  }

  /// A value between its tags: JSON, if it can be no text.
  Expr tagged_parameter(const TaggedCallSyntax& syntax, const ToolFunction& tool, const std::string& key,
                        const Json& schema) {
    const Expr line_end = syntax.has_line_ends ? builder_.literal("\n") : builder_.empty();
    const Expr between = syntax.value_open.empty() ? builder_.empty() : white_space();
    const Expr value = is_no_text(schema) ? schema_or_any(tool, schema, "parameters.properties." + key)
                                          : tagged_text(syntax, tool, key, schema);
    return builder_.join(marker(syntax.key_open), key, marker(syntax.key_close), between,
                         marker(syntax.value_open), line_end, value, line_end, marker(syntax.value_close),
                         white_space());
  }

  Expr tagged_call(const TaggedCallSyntax& syntax) {
    return any_tool([&](const ToolFunction& tool) {
      std::vector<Expr> parts = {marker(syntax.name_open), builder_.literal(tool.name),
                                 marker(syntax.name_close),
                                 syntax.name_close.empty() ? builder_.literal("\n") : white_space()};
      for (const Parameter& parameter : parameters_in(tool.parameters)) {
        const Json schema = with_definitions(parameter.schema, tool.parameters);
        const Expr tagged = tagged_parameter(syntax, tool, parameter.key, schema);
        parts.push_back(parameter.is_required ? tagged : builder_.optional(tagged));
      }
      parts.push_back(marker(syntax.call_close));
      return builder_.sequence(parts);
    });
  }

  Expr tagged_calls(const TaggedCallSyntax& syntax) {
    TaggedCallSyntax named = syntax;
    if (syntax.begins_with_name) named.name_open = {};
    const Expr call = tagged_call(named);
    return list_of(builder_.sequence(
                       {marker(opening_.marker), white_space(), call, white_space(), marker(syntax.close)}),
                   "");
  }

  /// Python's literals, as far as JSON's are not the same.
  Expr pythonic_value(const ToolFunction& tool, const std::string& key, const Json& schema) {
    if (!tool.input_lark.empty()) return input_text(tool);
    if (is_of_type(schema, "boolean")) return add_choices(builder_, {"True", "False"});
    if (is_of_type(schema, "null")) return builder_.literal("None");
    return schema_or_any(tool, schema, "parameters.properties." + key);
  }

  /// NAME(KEY=VALUE, ...), with the parameters in the order of the schema. A rule for what may follow each of them: they can be left out in
  /// many ways.
  Expr pythonic_call() {
    return any_tool([&](const ToolFunction& tool) {
      const std::vector<Parameter> parameters = parameters_in(tool.parameters);
      Expr first = builder_.empty(), later = builder_.empty();
      for (size_t i = parameters.size(); i > 0; --i) {
        const Parameter& parameter = parameters[i - 1];
        const Json schema = with_definitions(parameter.schema, tool.parameters);
        const Expr value = pythonic_value(tool, parameter.key, schema);
        const Expr item = builder_.join(parameter.key + "=", value);
        const GrammarBuilder::Rule rest = builder_.add_rule("parameters behind " + parameter.key);
        builder_.define(rest, later);
        const Expr with_item = builder_.sequence({item, builder_.reference(rest)});
        const Expr next = builder_.join(", ", item);
        first = parameter.is_required ? with_item : builder_.choice({with_item, first});
        later = builder_.sequence(
            {parameter.is_required ? next : builder_.optional(next), builder_.reference(rest)});
      }
      return builder_.join(tool.name + "(", first, ")");
    });
  }

  Expr pythonic_calls(const PythonicCallSyntax& syntax) {
    const Expr calls = list_of(pythonic_call(), ",");
    const Expr list = syntax.needs_list ? builder_.join("[", calls, "]") : calls;
    const Expr line_end = syntax.close.starts_with('`') ? builder_.literal("\n") : builder_.empty();
    return builder_.sequence({marker(opening_.marker), list, line_end, marker(syntax.close)});
  }

  GrammarBuilder& builder_;
  const std::vector<ToolFunction>& tools_;
  const CallOpening& opening_;
  const bool several_;
};

}  // namespace

Expr marker(GrammarBuilder& builder, std::string_view text) {
  if (text.empty()) return builder.empty();
  const std::string control = std::string(1, static_cast<char>(kControlByte)) + std::string(text);
  return builder.choice({builder.literal(text), builder.literal(control)});
}

Expr text_without(GrammarBuilder& builder, std::span<const std::string_view> markers) {
  const Expr any = builder.any_number(builder.characters({{0, 0x10ffff}}));
  std::vector<Expr> literals;
  for (const std::string_view text : markers) {
    if (!text.empty()) literals.push_back(builder.literal(text));
  }
  return builder.minus(any, builder.sequence({any, builder.choice(literals), any}));
}

Expr calls_of(GrammarBuilder& builder, const std::vector<ToolFunction>& tools, const CallOpening& opening,
              bool several) {
  return CallGrammar(builder, tools, opening, several).calls();
}

Expr harmony_call(GrammarBuilder& builder, const std::vector<ToolFunction>& tools) {
  return CallGrammar(builder, tools, {}, false).harmony_call();
}

}  // namespace minfer::answers
