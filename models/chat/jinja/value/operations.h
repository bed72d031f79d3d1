#pragma once

namespace minfer::jinja {

enum class UnaryOp { negate, plus, logical_not };
enum class BinaryOp { add, subtract, multiply, divide, floor_divide, modulo, power, logical_and, logical_or };

}  // namespace minfer::jinja
