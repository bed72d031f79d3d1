#pragma once

#include "models/chat/jinja/syntax/ast.h"
#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// Arithmetic with Python's rules. Ints have 64 bits. Throws TemplateError for results that do not fit and operands that Python refuses.
Value apply(BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& operand, UnaryOp op);

/// Python's `left op right`.
bool compare(const Value& left, CompareOp op, const Value& right);

/// The first position of `part` in `text` at or after `from`, in time linear in both; npos if there is none.
size_t find_bytes(std::string_view text, std::string_view part, size_t from = 0);

}  // namespace minfer::jinja
