#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/syntax/lexer.h"
#include "models/chat/jinja/value/namespace.h"
#include "models/chat/jinja/value/object.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

/// The variable `loop` of a for loop, which also steps it. Looks one element ahead, and through all of an
/// iterator without a length, only when the template asks for that.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  /// Renders the loop's body for an inner iterable, in a loop marked recursive.
  using Recurse = std::function<Value(const Value& iterable, int depth)>;

  Loop(const Value& iterable, Recurse recurse, int depth)
      : iterator_(iterate(iterable)),
        recurse_(std::move(recurse)),
        depth_(depth),
        value_depth_(iterable.depth() + 1) {
    if (const std::optional<size_t> size = length_of(iterable)) length_ = static_cast<int64_t>(*size);
  }

  /// The next element, nothing at the end.
  std::optional<Value> advance() {
    std::optional<Value> item;
    if (after_) {
      item = std::exchange(after_, std::nullopt);
    } else if (!at_end_) {
      item = iterator_->next();
    }
    if (!item) return std::nullopt;
    ++index_;
    before_ = std::exchange(current_, item);
    return item;
  }

  /// After the last iteration: releases the elements, which may refer to the loop.
  void finish() {
    before_ = current_ = after_ = last_changed_ = std::nullopt;
    at_end_ = finished_ = true;
    recurse_ = nullptr;
  }

  std::string_view type_name() const override { return "LoopContext"; }

  std::optional<Value> attribute(std::string_view name) override {
    if (name == "index0") return Value(index_);
    if (name == "index") return Value(index_ + 1);
    if (name == "first") return Value(index_ == 0);
    if (name == "last") return Value(!peek().has_value());
    if (name == "length") return Value(num_elements());
    if (name == "revindex0") return Value(num_elements() - index_ - 1);
    if (name == "revindex") return Value(num_elements() - index_);
    if (name == "depth0") return Value(static_cast<int64_t>(depth_));
    if (name == "depth") return Value(static_cast<int64_t>(depth_) + 1);
    if (name == "previtem") return before_ ? *before_ : Value::undefined("there is no previous item");
    if (name == "nextitem") {
      const std::optional<Value>& next = peek();
      return next ? *next : Value::undefined("there is no next item");
    }
    if (name == "cycle") {
      return make_function("cycle", [self = shared_from_this()](const Arguments& arguments) {
        if (arguments.positional.empty())
          fail<TemplateError>("loop.cycle() without arguments, expected some");
        return arguments.positional[static_cast<size_t>(self->index_) % arguments.positional.size()];
      });
    }
    if (name == "changed") {
      return make_function("changed", [self = shared_from_this()](const Arguments& arguments) {
        return Value(self->changed(arguments));
      });
    }
    return std::nullopt;
  }

  bool callable() const override { return true; }

  Value call(const Arguments& arguments) override {
    if (!recurse_) fail<TemplateError>("loop() called in a loop that is not marked 'recursive'");
    if (arguments.positional.size() != 1 || !arguments.named.empty())
      fail<TemplateError>("loop() with {} arguments, expected 1",
                          arguments.positional.size() + arguments.named.size());
    return recurse_(arguments.positional.front(), depth_ + 1);
  }

  int depth() const override { return value_depth_; }

 private:
  int64_t num_elements() {
    if (!length_) {
      Items rest = to_items(Value(std::static_pointer_cast<Object>(iterator_)));
      length_ = static_cast<int64_t>(rest.size()) + index_ + 1 + (after_ ? 1 : 0);
      iterator_ = iterate(make_list(std::move(rest)));
    }
    return *length_;
  }

  const std::optional<Value>& peek() {
    if (!after_ && !at_end_) {
      after_ = iterator_->next();
      at_end_ = !after_;
    }
    return after_;
  }

  bool changed(const Arguments& arguments) {
    Value now = make_tuple(arguments.positional);
    if (last_changed_ && equals(*last_changed_, now)) return false;
    if (!finished_) last_changed_ = std::move(now);
    return true;
  }

  std::shared_ptr<Iterator> iterator_;
  Recurse recurse_;
  int depth_;
  int value_depth_;
  int64_t index_ = -1;
  std::optional<int64_t> length_;
  std::optional<Value> before_, current_, after_;
  std::optional<Value> last_changed_;
  bool at_end_ = false;  // after_ was asked for, and there is none
  bool finished_ = false;
};

}  // namespace

/// Makes `scope` the current one until the end of the block.
class Interpreter::ScopeGuard {
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

Interpreter::Interpreter(const Body& body, const Dict& variables)
    : body_(body), variables_(variables), scope_(make_counted<Scope>(nullptr)) {}

Text Interpreter::run() {
  try {
    return capture([this] { execute(body_); });
  } catch (const TemplateRaised&) {
    throw;
  } catch (const TemplateError& error) {
    fail_at(line_, "{}", error.what());
  }
}

Text Interpreter::capture(const std::function<void()>& render) {
  Text writer;
  Text* outer = std::exchange(out_, &writer);
  render();
  out_ = outer;
  return writer;
}

void Interpreter::write(const Value& value) {
  print(*out_, value);
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const Statement& statement : body) {
    const Flow flow = execute(statement);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::execute(const Statement& statement) {
  const Rendering::Level level;
  Rendering::step();
  const int outer_line = std::exchange(line_, statement.line);
  const Flow flow = std::visit([this](const auto& node) { return run_node(node); }, statement.node);
  line_ = outer_line;
  return flow;
}

Interpreter::Flow Interpreter::run_node(const Data& data) {
  out_->append(data.text);
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const Output& output) {
  for (const ExprPtr& value : output.values)
    write(evaluate(value));
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const If& statement) {
  for (const auto& [test, body] : statement.branches)
    if (evaluate(test).truth()) return execute(body);
  return execute(statement.otherwise);
}

Interpreter::Flow Interpreter::run_node(const For& loop) {
  run_loop(loop, evaluate(loop.iterable), 0, scope_);
  return Flow::normal;
}

void Interpreter::run_loop(const For& loop, const Value& iterable, int depth,
                           const std::shared_ptr<Scope>& outer) {
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
    scope->set("loop", Value(std::static_pointer_cast<Object>(state)));
    if (execute(loop.body) == Flow::break_loop) break;
  }
  state->finish();
  if (any) return;
  const ScopeGuard guard(*this, make_counted<Scope>(outer));
  execute(loop.otherwise);
}

/// The elements for which the loop's `if` holds, tested one by one as the loop asks for them.
Value Interpreter::filter_elements(const For& loop, const Value& iterable,
                                   const std::shared_ptr<Scope>& outer) {
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

Interpreter::Flow Interpreter::run_node(const Set& set) {
  assign(set.target, evaluate(set.value));
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const SetBlock& block) {
  Value value;
  {
    const ScopeGuard guard(*this, make_counted<Scope>(scope_));
    value = Value(capture([&] { execute(block.body); }));
    if (block.filter != nullptr) {
      filtered_ = std::move(value);
      value = evaluate(block.filter);
    }
  }
  assign(block.target, value);
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const FilterBlock& block) {
  const ScopeGuard guard(*this, make_counted<Scope>(scope_));
  filtered_ = Value(capture([&] { execute(block.body); }));
  write(evaluate(block.filter));
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const MacroStatement& statement) {
  scope_->set(statement.macro->name, make_macro(*this, *statement.macro, scope_));
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const CallBlock& block) {
  const Call& call = std::get<Call>(block.call->node);
  const Value callee = evaluate(call.callee);
  Arguments arguments = evaluate_arguments(call.arguments);
  arguments.named.emplace_back("caller", make_macro(*this, *block.caller, scope_));
  write(call_value(callee, arguments));
  return Flow::normal;
}

Interpreter::Flow Interpreter::run_node(const With& with) {
  const auto scope = make_counted<Scope>(scope_);
  std::vector<Value> values;
  for (const auto& [target, expr] : with.variables)
    values.push_back(evaluate(expr));
  const ScopeGuard guard(*this, scope);
  for (size_t i = 0; i < values.size(); ++i)
    assign(with.variables[i].first, values[i]);
  return execute(with.body);
}

void Interpreter::assign(const Target& target, const Value& value) {
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
    const auto space = found == nullptr ? nullptr : found->object_as<Namespace>();
    if (space == nullptr)
      fail<TemplateError>("cannot set an attribute of '{}', expected a namespace", target.name);
    space->set(Text(target.attribute), value);
  }
}

Value Interpreter::call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& scope,
                              const Arguments& arguments) {
  const Rendering::Level level;
  const int outer_line = line_;
  const ScopeGuard guard(*this, make_counted<Scope>(scope));
  bind_parameters(macro, arguments);
  Text text = capture([&] { execute(macro.body); });
  line_ = outer_line;
  return Value(std::move(text));
}

void Interpreter::bind_parameters(const MacroBody& macro, Arguments arguments) {
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
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(name);
    }
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
    fail<TemplateError>("macro '{}' takes no argument named '{}'", macro.name, arguments.named.front().first);
  }
}

}  // namespace minfer::jinja
