#include "models/chat/jinja/interpreter.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/operators.h"
#include "models/chat/jinja/loop.h"
#include "models/chat/jinja/scope.h"
#include "models/chat/jinja/syntax/lexer.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

/// Walks the tree of a template once; the rendering bounds the depth.
class Interpreter {
 public:
  explicit Interpreter(const Dict& variables) : variables_(variables), scope_(make_counted<Scope>(nullptr)) {}

  Rendered run(const Body& body) {
    try {
      Text text = capture([&] { execute(body); });
      return {std::move(text), {read_.begin(), read_.end()}};
    } catch (const TemplateRaised&) {
      throw;
    } catch (const TemplateError& error) {
      fail_at(line_, "{}", error.what());
    }
  }

 private:
  enum class Flow { normal, break_loop, continue_loop };

  /// Makes `scope` the current one until the end of the block.
  class ScopeGuard {
   public:
    ScopeGuard(Interpreter& interpreter, std::shared_ptr<Scope> scope)
        : interpreter_(interpreter), outer_(std::exchange(interpreter.scope_, std::move(scope))) {}
    ~ScopeGuard() { interpreter_.scope_ = std::move(outer_); }
    ScopeGuard(const ScopeGuard&) = delete;
    ScopeGuard& operator=(const ScopeGuard&) = delete;

   private:
    Interpreter& interpreter_;
    std::shared_ptr<Scope> outer_;
  };

  /// A macro as a value. Refers to the scope that it was defined in, which in turn may hold the macro.
  class MacroObject : public Object {
   public:
    MacroObject(Interpreter& interpreter, const Macro& macro)
        : interpreter_(interpreter), macro_(macro), scope_(interpreter.scope_) {}
    std::string_view type_name() const override { return "Macro"; }
    void print(Text& out) const override { out.append(fmt::format("<Macro '{}'>", macro_.name)); }
    std::optional<Value> attribute(std::string_view name) override {
      return name == "name" ? std::optional(make_text(macro_.name)) : std::nullopt;
    }
    bool callable() const override { return true; }
    Value call(const Arguments& arguments) override {
      return interpreter_.call_macro(macro_, scope_, arguments);
    }
    void release() override { scope_ = nullptr; }

   private:
    Interpreter& interpreter_;
    const Macro& macro_;
    std::shared_ptr<Scope> scope_;
  };

  Value make_macro(const Macro& macro) {
    const auto made = make_counted<MacroObject>(*this, macro);
    Rendering::keep(made);
    return Value(made);
  }

  /// Up to a break or continue, which stays in `flow_` for the loop around the body.
  void execute(const Body& body) {
    for (const Statement& statement : body) {
      const Rendering::Level level;
      Rendering::step();
      const int outer_line = std::exchange(line_, statement.line);
      std::visit([this](const auto& node) { run_node(node); }, statement.node);
      line_ = outer_line;
      if (flow_ != Flow::normal) return;
    }
  }

  void run_node(const Data& data) { out_->append(data.text); }

  void run_node(const Output& output) {
    for (const ExprPtr& value : output.values)
      print(*out_, evaluate(value));
  }

  void run_node(const If& statement) {
    for (const auto& [test, body] : statement.branches)
      if (evaluate(test).truth()) return execute(body);
    execute(statement.otherwise);
  }

  void run_node(const For& loop) { run_loop(loop, evaluate(loop.iterable), 0, scope_); }

  void run_loop(const For& loop, const Value& iterable, int depth, const std::shared_ptr<Scope>& outer) {
    Loop::Recurse recurse;
    if (loop.recursive) {
      recurse = [this, &loop, outer](const Value& inner, int inner_depth) {
        return Value(capture([&] { run_loop(loop, inner, inner_depth, outer); }));
      };
    }
    const Value elements = loop.test == nullptr ? iterable : filter_elements(loop, iterable, outer);
    const auto state = make_counted<Loop>(elements, std::move(recurse), depth);
    bool any = false;
    std::shared_ptr<Scope> scope;
    while (const std::optional<Value> element = state->advance()) {
      Rendering::step();
      any = true;
      if (scope.use_count() == 1) {
        scope->clear();
      } else {  // the first, or one that a macro keeps
        scope = make_counted<Scope>(outer);
      }
      const ScopeGuard guard(*this, scope);
      assign(loop.target, *element);
      scope->set("loop", Value(state));
      execute(loop.body);
      if (std::exchange(flow_, Flow::normal) == Flow::break_loop) break;
    }
    state->finish();
    if (any) return;
    const ScopeGuard guard(*this, make_counted<Scope>(outer));
    execute(loop.otherwise);
  }

  /// The elements for which the loop's `if` holds, tested one by one as the loop asks for them.
  Value filter_elements(const For& loop, const Value& iterable, const std::shared_ptr<Scope>& outer) {
    return make_generator(
        [this, &loop, outer, iterator = iterate(iterable)]() -> std::optional<Value> {
          while (std::optional<Value> element = iterator->next()) {
            const ScopeGuard guard(*this, make_counted<Scope>(outer));
            assign(loop.target, *element);
            if (evaluate(loop.test).truth()) return element;
          }
          return std::nullopt;
        },
        iterable.depth());
  }

  void run_node(const Set& set) { assign(set.target, evaluate(set.value)); }

  void run_node(const Captured& block) {
    Value value;
    {
      const ScopeGuard guard(*this, make_counted<Scope>(scope_));
      value = Value(capture([&] { execute(block.body); }));
      if (flow_ != Flow::normal) return;
      if (block.filter != nullptr) {
        filtered_ = std::move(value);
        value = evaluate(block.filter);
      }
    }
    block.target ? assign(*block.target, value) : print(*out_, value);
  }

  void run_node(const Macro& macro) { scope_->set(macro.name, make_macro(macro)); }

  void run_node(const CallBlock& block) {
    const Call& call = std::get<Call>(block.call->node);
    const Value callee = evaluate(call.callee);
    Arguments arguments = evaluate_arguments(call.arguments);
    arguments.named.emplace_back("caller", make_macro(block.caller));
    print(*out_, call_value(callee, arguments));
  }

  void run_node(const With& with) {
    const auto scope = make_counted<Scope>(scope_);
    std::vector<Value> values;
    for (const auto& [target, expr] : with.variables)
      values.push_back(evaluate(expr));
    const ScopeGuard guard(*this, scope);
    for (size_t i = 0; i < values.size(); ++i)
      assign(with.variables[i].first, values[i]);
    execute(with.body);
  }

  void run_node(const Break&) { flow_ = Flow::break_loop; }
  void run_node(const Continue&) { flow_ = Flow::continue_loop; }

  /// The output of `render_part` as a text.
  Text capture(const std::function<void()>& render_part) {
    Text writer;
    Text* outer = std::exchange(out_, &writer);
    render_part();
    out_ = outer;
    return writer;
  }

  void assign(const Target& target, const Value& value) {
    if (!target.targets.empty()) {
      const Items items = to_items(value);
      if (items.size() != target.targets.size())
        fail<TemplateError>("{} values to unpack, expected {}", items.size(), target.targets.size());
      for (size_t i = 0; i < items.size(); ++i)
        assign(target.targets[i], items[i]);
    } else if (target.attribute.empty()) {
      scope_->set(target.name, value);
    } else {
      const Value* found = scope_->find(target.name);
      const std::shared_ptr<Object> object = found == nullptr ? nullptr : found->object();
      if (object == nullptr || !object->set_attribute(Text(target.attribute), value))
        fail<TemplateError>("cannot set an attribute of '{}', expected a namespace", target.name);
    }
  }

  /// A call of `macro`, whose free names are those of `scope`.
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& scope, const Arguments& arguments) {
    const Rendering::Level level;
    const int outer_line = line_;
    const ScopeGuard guard(*this, make_counted<Scope>(scope));
    bind_parameters(macro, arguments);
    Text text = capture([&] { execute(macro.body); });
    line_ = outer_line;
    return Value(std::move(text));
  }

  void bind_parameters(const Macro& macro, Arguments arguments) {
    const auto take_named = [&](std::string_view name) -> std::optional<Value> {
      const auto found =
          std::ranges::find(arguments.named, name, [](const auto& entry) { return entry.first; });
      if (found == arguments.named.end()) return std::nullopt;
      Value value = std::move(found->second);
      arguments.named.erase(found);
      return value;
    };
    const size_t num_parameters = macro.parameters.size();
    const size_t first_default = num_parameters - macro.defaults.size();
    for (size_t i = 0; i < num_parameters; ++i) {
      const std::string& name = macro.parameters[i];
      const bool positional = i < arguments.positional.size();
      std::optional<Value> value = positional ? arguments.positional[i] : take_named(name);
      if (!value) {
        value = i >= first_default ? evaluate(macro.defaults[i - first_default])
                                   : Value::undefined(fmt::format("parameter '{}' was not provided", name));
      }
      scope_->set(name, *std::move(value));
    }
    if (macro.uses_caller)
      scope_->set("caller", take_named("caller").value_or(Value::undefined("No caller defined")));
    const size_t more = arguments.positional.size() - std::min(arguments.positional.size(), num_parameters);
    if (macro.uses_varargs) {
      scope_->set("varargs", make_tuple({arguments.positional.end() - static_cast<std::ptrdiff_t>(more),
                                         arguments.positional.end()}));
    } else if (more > 0) {
      fail<TemplateError>("macro '{}' with {} arguments, expected at most {}", macro.name,
                          arguments.positional.size(), num_parameters);
    }
    if (macro.uses_kwargs) {
      Dict rest;
      for (auto& [name, value] : arguments.named)
        rest.set(Text(name), std::move(value));
      scope_->set("kwargs", make_dict(std::move(rest)));
    } else if (!arguments.named.empty()) {
      fail<TemplateError>("macro '{}' takes no argument named '{}'", macro.name,
                          arguments.named.front().first);
    }
  }

  /// None for a null pointer.
  Value evaluate(const ExprPtr& expr) {
    if (expr == nullptr) return Value();
    const Rendering::Level level;
    Rendering::step();
    const int outer_line = std::exchange(line_, expr->line);
    Value value = std::visit([this](const auto& node) { return eval_node(node); }, expr->node);
    line_ = outer_line;
    return value;
  }

  Value eval_node(const Literal& literal) { return literal.value; }

  Value eval_node(const Name& name) {
    if (const Value* found = scope_->find(name.name)) return *found;
    if (const Value* found = variables_.find(name.name)) {
      if (std::ranges::find(read_, name.name) == read_.end()) read_.push_back(name.name);
      return *found;
    }
    if (const std::optional<Value> global = find_global(name.name)) return *global;
    return Value::undefined(fmt::format("'{}' is undefined", name.name));
  }

  Value eval_node(const ListExpr& list) {
    Items items;
    for (const ExprPtr& item : list.items)
      items.push_back(evaluate(item));
    return list.is_tuple ? make_tuple(std::move(items)) : make_list(std::move(items));
  }

  Value eval_node(const DictExpr& expr) {
    Dict dict;
    for (const auto& [key, value] : expr.entries) {
      Value key_value = evaluate(key);
      dict.set(std::move(key_value), evaluate(value));
    }
    return make_dict(std::move(dict));
  }

  Value eval_node(const Unary& unary) {
    const Value operand = evaluate(unary.operand);
    return unary.op == UnaryOp::logical_not ? Value(!operand.truth()) : negate(operand, unary.op);
  }

  Value eval_node(const Binary& binary) {
    Value left = evaluate(binary.left);
    if (binary.op == BinaryOp::logical_and) return left.truth() ? evaluate(binary.right) : left;
    if (binary.op == BinaryOp::logical_or) return left.truth() ? left : evaluate(binary.right);
    return apply(binary.op, left, evaluate(binary.right));
  }

  Value eval_node(const Concat& concat) {
    Text out;
    for (const ExprPtr& part : concat.parts)
      print(out, evaluate(part));
    return Value(std::move(out));
  }

  Value eval_node(const Compare& expr) {
    Value left = evaluate(expr.first);
    for (const auto& [op, operand] : expr.rest) {
      Value right = evaluate(operand);
      if (!compare(left, op, right)) return Value(false);
      left = std::move(right);
    }
    return Value(true);
  }

  Value eval_node(const Conditional& conditional) {
    if (evaluate(conditional.test).truth()) return evaluate(conditional.then);
    if (conditional.otherwise != nullptr) return evaluate(conditional.otherwise);
    return Value::undefined("the inline if-expression was false and has no else");
  }

  Value eval_node(const Attribute& attribute) {
    return get_attribute(evaluate(attribute.object), attribute.name);
  }

  Value eval_node(const Subscript& subscript) {
    const Value object = evaluate(subscript.object);
    return get_item(object, evaluate(subscript.index));
  }

  Value eval_node(const Slice& slice) {
    const Value object = evaluate(slice.object);
    const Value begin = evaluate(slice.begin);
    const Value end = evaluate(slice.end);
    return get_slice(object, begin, end, evaluate(slice.step));
  }

  Value eval_node(const Call& call) {
    const Value callee = evaluate(call.callee);
    return call_value(callee, evaluate_arguments(call.arguments));
  }

  Value eval_node(const Apply& expr) {
    if (expr.function == nullptr) fail<TemplateError>("no {} named '{}'", expr.kind, expr.name);
    const Value subject =
        expr.operand == nullptr ? std::exchange(filtered_, Value()) : evaluate(expr.operand);
    return (*expr.function)(subject, evaluate_arguments(expr.arguments));
  }

  static Value call_value(const Value& callee, const Arguments& arguments) {
    callee.require_defined();
    const std::shared_ptr<Object> object = callee.object();
    if (object == nullptr) fail<TemplateError>("'{}' object is not callable", callee.type_name());
    return object->call(arguments);
  }

  Arguments evaluate_arguments(const CallArguments& expr) {
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

  const Dict& variables_;
  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  std::vector<std::string_view> read_;  // of the variables, each once
  Flow flow_ = Flow::normal;
  Value filtered_;  // operand of the filters of a block
  int line_ = 1;
};

}  // namespace

Rendered render(const Body& body, const Dict& variables) {
  return Interpreter(variables).run(body);
}

}  // namespace minfer::jinja
