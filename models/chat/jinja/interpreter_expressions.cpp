#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/operators.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  const Rendering::Level level;
  Rendering::step();
  const int outer_line = std::exchange(line_, expr.line);
  Value value = std::visit([this](const auto& node) { return eval_node(node); }, expr.node);
  line_ = outer_line;
  return value;
}

Value Interpreter::eval_node(const Name& name) {
  if (const Value* found = scope_->find(name.name)) return *found;
  if (const Value* found = variables_.find(name.name)) {
    if (!has_read(name.name)) read_.push_back(name.name);
    return *found;
  }
  if (const std::optional<Value> global = find_global(name.name)) return *global;
  return Value::undefined(fmt::format("'{}' is undefined", name.name));
}

Value Interpreter::eval_node(const ListExpr& list) {
  Items items;
  for (const ExprPtr& item : list.items)
    items.push_back(evaluate(item));
  return list.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
}

Value Interpreter::eval_node(const DictExpr& expr) {
  Dict dict;
  for (const auto& [key, value] : expr.entries) {
    Value key_value = evaluate(key);
    dict.set(std::move(key_value), evaluate(value));
  }
  return make_dict(std::move(dict));
}

Value Interpreter::eval_node(const Unary& unary) {
  const Value operand = evaluate(unary.operand);
  return unary.op == UnaryOp::logical_not ? Value(!operand.truth()) : negate(operand, unary.op);
}

Value Interpreter::eval_node(const Binary& binary) {
  Value left = evaluate(binary.left);
  if (binary.op == BinaryOp::logical_and) return left.truth() ? evaluate(binary.right) : left;
  if (binary.op == BinaryOp::logical_or) return left.truth() ? left : evaluate(binary.right);
  return apply(binary.op, left, evaluate(binary.right));
}

Value Interpreter::eval_node(const Concat& concat) {
  Text out;
  for (const ExprPtr& part : concat.parts)
    print(out, evaluate(part));
  return Value(std::move(out));
}

Value Interpreter::eval_node(const Compare& expr) {
  Value left = evaluate(expr.first);
  for (const auto& [operation, operand] : expr.rest) {
    Value right = evaluate(operand);
    if (!compare(left, operation, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

bool Interpreter::compare(const Value& left, std::string_view operation, const Value& right) {
  if (operation == "==") return equals(left, right);
  if (operation == "!=") return !equals(left, right);
  if (operation == "in") return contains(right, left);
  if (operation == "not in") return !contains(right, left);
  return ordered(left, operation, right);
}

Value Interpreter::eval_node(const Conditional& conditional) {
  if (evaluate(conditional.test).truth()) return evaluate(conditional.then);
  if (conditional.otherwise != nullptr) return evaluate(conditional.otherwise);
  return Value::undefined("the inline if-expression was false and has no else");
}

Value Interpreter::eval_node(const Attribute& attribute) {
  return get_attribute(evaluate(attribute.object), attribute.name);
}

Value Interpreter::eval_node(const Subscript& subscript) {
  const Value object = evaluate(subscript.object);
  return get_item(object, evaluate(subscript.index));
}

Value Interpreter::eval_node(const Slice& slice) {
  const Value object = evaluate(slice.object);
  const Value begin = evaluate(slice.begin);
  const Value end = evaluate(slice.end);
  return get_slice(object, begin, end, evaluate(slice.step));
}

Value Interpreter::eval_node(const Call& call) {
  const Value callee = evaluate(call.callee);
  return call_value(callee, evaluate_arguments(call.arguments));
}

Value Interpreter::call_value(const Value& callee, const Arguments& arguments) {
  callee.require_defined();
  const std::shared_ptr<Object> object = callee.object();
  if (object == nullptr) fail<TemplateError>("'{}' object is not callable", callee.type_name());
  return object->call(arguments);
}

Arguments Interpreter::evaluate_arguments(const CallArguments& expr) {
  Arguments arguments;
  for (const ExprPtr& value : expr.positional)
    arguments.positional.push_back(evaluate(value));
  for (const auto& [name, value] : expr.named)
    arguments.named.emplace_back(name, evaluate(value));
  if (expr.more_positional != nullptr) {
    for (Value& value : to_items(evaluate(expr.more_positional)))
      arguments.positional.push_back(std::move(value));
  }
  if (expr.more_named == nullptr) return arguments;
  const Value more = evaluate(expr.more_named);
  if (more.dict() == nullptr) fail<TemplateError>("** in front of '{}', expected a dict", more.type_name());
  for (const auto& [key, value] : more.dict()->entries()) {
    if (key.text() == nullptr) fail<TemplateError>("** of a dict with a key that is no text");
    arguments.named.emplace_back(key.text()->bytes(), value);
  }
  return arguments;
}

Value Interpreter::eval_node(const FilterExpr& expr) {
  const Filter filter = find_filter(expr.name);
  if (filter == nullptr) fail<TemplateError>("no filter named '{}'", expr.name);
  const Value subject = expr.operand == nullptr ? std::exchange(filtered_, Value()) : evaluate(expr.operand);
  return filter(subject, evaluate_arguments(expr.arguments));
}

Value Interpreter::eval_node(const TestExpr& expr) {
  const Test test = find_test(expr.name);
  if (test == nullptr) fail<TemplateError>("no test named '{}'", expr.name);
  const Value subject = evaluate(expr.operand);
  return Value(test(subject, evaluate_arguments(expr.arguments)));
}

}  // namespace minfer::jinja
