#pragma once

#include <string_view>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// `object.name`: a method or attribute first, then a key. A missing name gives an undefined value. So does,
/// with another reason, a name that the immutable sandbox forbids (methods that change a list or dict, names that
/// begin with "_"). Throws TemplateError if `object` is undefined.
Value get_attribute(const Value& object, std::string_view name);

/// `object[key]`: a key or position first, then an attribute.
Value get_item(const Value& object, const Value& key);

/// `object[begin:end:step]`, each None or an int.
Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step);

}  // namespace minfer::jinja
