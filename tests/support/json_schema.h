#pragma once

#include <algorithm>
#include <regex>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace minfer::test {

/// The keywords of JSON Schema that the profile schemas use. Any other keyword is an error, so that none is ignored.
class JsonSchema {
 public:
  using Json = nlohmann::json;

  explicit JsonSchema(Json root) : root_(std::move(root)) {}

  /// The errors of `value`; empty: none.
  std::string check(const Json& value) const { return check(value, root_, "$"); }

 private:
  std::string check(const Json& value, const Json& schema, const std::string& path) const {
    if (schema.contains("type") && !has_type(value, schema["type"])) {
      return path + ": " + value.dump() + " is no " + schema["type"].get<std::string>();
    }
    for (const auto& [keyword, rule] : schema.items()) {
      const std::string problem = apply(keyword, rule, value, schema, path);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::string apply(const std::string& keyword, const Json& rule, const Json& value, const Json& schema,
                    const std::string& path) const {
    if (keyword == "$schema" || keyword == "title" || keyword == "description" || keyword == "$defs")
      return {};
    if (keyword == "additionalProperties") return additional(rule, value, schema, path);
    if (keyword == "$ref")
      return check(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), path);
    if (keyword == "oneOf") return one_of(rule, value, path);
    if (keyword == "properties") return properties(rule, value, path);
    if (keyword == "required") return required(rule, value, path);
    if (keyword == "items") return items(rule, value, path);
    if (keyword == "type") return {};  // checked first: the other keywords rely on it
    bool holds = false;
    if (keyword == "const") {
      holds = value == rule;
    } else if (keyword == "enum") {
      holds = std::find(rule.begin(), rule.end(), value) != rule.end();
    } else if (keyword == "minimum") {
      holds = value.get<double>() >= rule.get<double>();
    } else if (keyword == "maximum") {
      holds = value.get<double>() <= rule.get<double>();
    } else if (keyword == "minItems") {
      holds = value.size() >= rule.get<size_t>();
    } else if (keyword == "maxItems") {
      holds = value.size() <= rule.get<size_t>();
    } else if (keyword == "pattern") {
      holds = std::regex_search(value.get<std::string>(), std::regex(rule.get<std::string>()));
    } else {
      return "the schema uses " + keyword + ", which this test does not know";
    }
    return holds ? "" : path + ": " + value.dump() + " breaks " + keyword + " " + rule.dump();
  }

  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "integer") return value.is_number_integer();
    return type == "number" && value.is_number();
  }

  std::string one_of(const Json& rules, const Json& value, const std::string& path) const {
    std::string problems;
    int matches = 0;
    for (const Json& rule : rules) {
      const std::string problem = check(value, rule, path);
      if (problem.empty()) ++matches;
      problems += problem + "; ";
    }
    return matches == 1 ? "" : path + ": " + std::to_string(matches) + " of oneOf hold: " + problems;
  }

  std::string properties(const Json& rules, const Json& value, const std::string& path) const {
    for (const auto& [name, rule] : rules.items()) {
      if (!value.contains(name)) continue;
      const std::string problem = check(value[name], rule, path + "." + name);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  std::string additional(const Json& rule, const Json& value, const Json& schema,
                         const std::string& path) const {
    for (const auto& [name, member] : value.items()) {
      if (schema.contains("properties") && schema["properties"].contains(name)) continue;
      if (rule == false) return path + ": has the field " + name + ", which the schema lacks";
      const std::string problem = check(member, rule, path + "." + name);
      if (!problem.empty()) return problem;
    }
    return {};
  }

  static std::string required(const Json& names, const Json& value, const std::string& path) {
    for (const Json& name : names) {
      if (!value.contains(name.get<std::string>())) return path + ": lacks " + name.dump();
    }
    return {};
  }

  std::string items(const Json& rule, const Json& value, const std::string& path) const {
    for (size_t i = 0; i < value.size(); ++i) {
      const std::string problem = check(value[i], rule, path + "[" + std::to_string(i) + "]");
      if (!problem.empty()) return problem;
    }
    return {};
  }

  Json root_;
};

}  // namespace minfer::test
