#include "models/chat/chat_json.h"

#include <nlohmann/json.hpp>

namespace minfer {

using jinja::Origin;
using jinja::Text;
using jinja::Value;
using nlohmann::ordered_json;

namespace {

constexpr int kMaxDepth = 100;

Text request_text(const std::string& bytes) {
  return Text(bytes, Origin::request);
}

[[noreturn]] void fail_depth() {
  fail("JSON nested more than {} levels deep", kMaxDepth);
}

Value convert(const ordered_json& json, int depth) {
  if (depth > kMaxDepth) fail_depth();
  switch (json.type()) {
    case ordered_json::value_t::boolean:
      return Value(json.get<bool>());
    case ordered_json::value_t::number_integer:
      return Value(json.get<int64_t>());
    case ordered_json::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) fail("JSON: {} does not fit into 64 bits", json.get<uint64_t>());
      return Value(json.get<int64_t>());
    case ordered_json::value_t::number_float:
      return Value(json.get<double>());
    case ordered_json::value_t::string:
      return Value(request_text(json.get_ref<const std::string&>()));
    case ordered_json::value_t::array: {
      jinja::Items items;
      for (const ordered_json& item : json)
        items.push_back(convert(item, depth + 1));
      return jinja::make_list(std::move(items));
    }
    case ordered_json::value_t::object: {
      jinja::Dict dict;
      for (const auto& [key, value] : json.items())
        dict.set(request_text(key), convert(value, depth + 1));
      return jinja::make_dict(std::move(dict));
    }
    default:
      return Value();
  }
}

/// A list of messages; make_role() reads their roles.
Value messages_from_json(const ordered_json& json) {
  if (!json.is_array()) fail("messages: {}, expected an array", json.type_name());
  jinja::Items messages;
  for (const ordered_json& message : json) {
    jinja::Dict dict;
    if (message.is_object()) {
      for (const auto& [key, value] : message.items())
        dict.set(request_text(key), key == "role" && value.is_string() ? make_role(value.get<std::string>())
                                                                       : convert(value, 2));
    }
    messages.push_back(message.is_object() ? jinja::make_dict(std::move(dict)) : convert(message, 1));
  }
  return jinja::make_list(std::move(messages));
}

}  // namespace

ChatInput chat_input_from_json(const ordered_json& json) {
  if (!json.is_object()) fail("chat: {}, expected an object with \"messages\"", json.type_name());
  ChatInput input;
  input.add_generation_prompt = false;
  bool has_messages = false;
  for (const auto& [key, value] : json.items()) {
    if (key == "messages") {
      input.messages = messages_from_json(value);
      has_messages = true;
    } else if (key == "tools" || key == "documents") {
      if (!value.is_array() && !value.is_null())
        fail("{}: {}, expected an array or null", key, value.type_name());
      (key == "tools" ? input.tools : input.documents) = convert(value, 0);
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean()) fail("add_generation_prompt: {}, expected true or false", value.type_name());
      input.add_generation_prompt = value.get<bool>();
    } else {
      input.variables.emplace_back(key, convert(value, 0));
    }
  }
  if (!has_messages) fail("chat: no \"messages\", expected an array of them");
  return input;
}

ChatInput parse_chat_input(std::string_view text) {
  const auto check_depth = [](int depth, ordered_json::parse_event_t, ordered_json&) {
    if (depth > kMaxDepth) fail_depth();
    return true;
  };
  try {
    return chat_input_from_json(ordered_json::parse(text, check_depth));
  } catch (const ordered_json::exception& error) {  // no JSON, or a number that no double holds
    fail("JSON: {}", error.what());
  }
}

}  // namespace minfer
