#pragma once

#include "models/chat/jinja/value/object.h"
#include "models/chat/jinja/value/operations.h"

namespace minfer::jinja {

/// Arithmetic with Python's rules. Ints have 64 bits. Throws TemplateError for results that do not fit and operands that Python refuses.
Value apply(BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& operand, UnaryOp op);

/// Python's `left op right`.
bool compare(const Value& left, CompareOp op, const Value& right);

/// The first position of `part` in `text` at or after `from`, in time linear in both; npos if there is none.
size_t find_bytes(std::string_view text, std::string_view part, size_t from = 0);

/// `object.name`: a method or attribute first, then a key. A missing name gives an undefined value. So does,
/// with another reason, a name that the immutable sandbox forbids (methods that change a list or dict, names that
/// begin with "_"). Throws TemplateError if `object` is undefined.
Value get_attribute(const Value& object, std::string_view name);

/// `object[key]`: a key or position first, then an attribute.
Value get_item(const Value& object, const Value& key);

/// `object[begin:end:step]`, each None or an int.
Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step);

}  // namespace minfer::jinja
