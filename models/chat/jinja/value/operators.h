#pragma once

#include "models/chat/jinja/evaluation.h"
#include "models/chat/jinja/syntax/ast.h"

namespace minfer::jinja {

/// Arithmetic with Python's rules. Ints have 64 bits: what does not fit throws TemplateError, as do operands that Python does not combine.
Value apply(Evaluation& evaluation, BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& operand, UnaryOp op);

/// `item in container`.
bool contains(Evaluation& evaluation, const Value& container, const Value& item);

/// Where `part` begins in `text` from `from` on, in time linear in both; npos if nowhere.
size_t find_bytes(std::string_view text, std::string_view part, size_t from = 0);

/// `format % arguments`, as C's printf with Python's additions.
Value format_percent(Evaluation& evaluation, const Text& format, const Value& arguments);

}  // namespace minfer::jinja
