#include "models/chat/answer/values/tool_types.h"

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

namespace minfer::answers {
namespace {

using Json = nlohmann::ordered_json;

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

JsonTypes type_by_name(const Json& name) {
  if (!name.is_string()) return kAnyType;
  const auto& text = name.get_ref<const std::string&>();
  if (text == "string") return kString;
  if (text == "number" || text == "integer") return kNumber;
  if (text == "boolean") return kBoolean;
  if (text == "null") return kNull;
  if (text == "object") return kObject;
  return text == "array" ? kArray : kAnyType;
}

}  // namespace

JsonTypes type_of_json(char first) {
  if (first == '"') return kString;
  if (first == '{') return kObject;
  if (first == '[') return kArray;
  if (first == 't' || first == 'f') return kBoolean;
  return first == 'n' ? kNull : kNumber;
}

JsonTypes types_of(const Json& schema) {
  JsonTypes types = kAnyType;
  const auto add = [&](const Json& value) {
    types |= type_of_json(value.is_object() ? '{' : value.is_array() ? '[' : value.dump().front());
  };
  if (const Json* type = member(schema, "type")) {
    if (!type->is_array()) return type_by_name(*type);
    for (const Json& each : *type)
      types |= type_by_name(each);
  } else if (const Json* value = member(schema, "const")) {
    add(*value);
  } else if (const Json* values = member(schema, "enum"); values != nullptr && values->is_array()) {
    std::ranges::for_each(*values, add);
  }
  return types;
}

const Json* ToolTypes::find_function(std::string_view function) const {
  if (tools_ == nullptr || !tools_->is_array()) return nullptr;
  for (const Json& tool : *tools_) {
    const Json* declared = member(tool, "function");
    const Json* name = declared != nullptr ? member(*declared, "name") : nullptr;
    if (name != nullptr && name->is_string() && name->get_ref<const std::string&>() == function)
      return declared;
  }
  return nullptr;
}

JsonTypes ToolTypes::parameter(std::string_view function, std::string_view parameter) const {
  const Json* declared = find_function(function);
  const Json* schema = declared != nullptr ? member(*declared, "parameters") : nullptr;
  const Json* properties = schema != nullptr ? member(*schema, "properties") : nullptr;
  const Json* property =
      properties != nullptr ? member(*properties, std::string(parameter).c_str()) : nullptr;
  if (property == nullptr) return kAnyType;

  JsonTypes types = types_of(*property);
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* alternatives = member(*property, key);
    if (alternatives == nullptr || !alternatives->is_array()) continue;
    for (const Json& alternative : *alternatives) {
      const JsonTypes of_it = types_of(alternative);
      if (of_it == kAnyType) return kAnyType;
      types |= of_it;
    }
  }
  return types;
}

}  // namespace minfer::answers
