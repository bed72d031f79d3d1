#pragma once

#include <string_view>
#include <unordered_map>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// A filter or test. `subject` is the value in front of `|` or `is`; `arguments` are the further arguments.
using Filter = Value (*)(const Value& subject, const Arguments& arguments);
using Test = bool (*)(const Value& subject, const Arguments& arguments);

/// Null if there is none of that name.
Filter find_filter(std::string_view name);
Test find_test(std::string_view name);
/// A name that every template knows: range, namespace, dict, cycler, joiner, raise_exception, strftime_now. Nothing if there is none.
std::optional<Value> find_global(std::string_view name);

using Method = Value (*)(const Value& self, const Arguments& arguments);
std::unordered_map<std::string_view, Method> text_methods();
/// `format.format(arguments)`, Python's str.format.
Value format_braces(const Value& format, const Arguments& arguments);
/// A method of a text, list or dict bound to its object; nothing if the type has no such method.
std::optional<Value> find_method(const Value& object, std::string_view name);

}  // namespace minfer::jinja
