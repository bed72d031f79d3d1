#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string_view>

#include "models/chat/jinja/scope.h"
#include "models/chat/jinja/syntax/ast.h"
#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// Renders a parsed template once. It walks the tree; the rendering bounds the depth.
class Interpreter {
 public:
  /// `variables` are those that the rendering starts with. All three arguments must outlive the interpreter.
  Interpreter(const Body& body, const Dict& variables);
  /// The rendered text. Throws TemplateError "line N: ...", and TemplateRaised with the template's own message.
  Text run();

  /// True if the rendering has read the variable.
  bool has_read(std::string_view variable) const { return std::ranges::find(read_, variable) != read_.end(); }

  /// A call of `macro`, whose free names are those of `scope`.
  Value call_macro(const MacroBody& macro, const std::shared_ptr<Scope>& scope, const Arguments& arguments);

 private:
  enum class Flow { normal, break_loop, continue_loop };
  class ScopeGuard;

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow run_node(const Data& data);
  Flow run_node(const Output& output);
  Flow run_node(const If& statement);
  Flow run_node(const For& loop);
  Flow run_node(const Set& set);
  Flow run_node(const SetBlock& block);
  Flow run_node(const MacroStatement& statement);
  Flow run_node(const CallBlock& block);
  Flow run_node(const FilterBlock& block);
  Flow run_node(const With& with);
  Flow run_node(const Break&) { return Flow::break_loop; }
  Flow run_node(const Continue&) { return Flow::continue_loop; }

  void run_loop(const For& loop, const Value& iterable, int depth, const std::shared_ptr<Scope>& outer);
  Value filter_elements(const For& loop, const Value& iterable, const std::shared_ptr<Scope>& outer);
  void bind_parameters(const MacroBody& macro, Arguments arguments);
  void assign(const Target& target, const Value& value);
  void write(const Value& value);
  /// Returns the output of `render` as a text.
  Text capture(const std::function<void()>& render);

  Value evaluate(const Expr& expr);
  /// None for a null pointer.
  Value evaluate(const ExprPtr& expr) { return expr == nullptr ? Value() : evaluate(*expr); }
  Value eval_node(const Literal& literal) { return literal.value; }
  Value eval_node(const Name& name);
  Value eval_node(const ListExpr& list);
  Value eval_node(const DictExpr& dict);
  Value eval_node(const Unary& unary);
  Value eval_node(const Binary& binary);
  Value eval_node(const Concat& concat);
  Value eval_node(const Compare& compare);
  Value eval_node(const Conditional& conditional);
  Value eval_node(const Attribute& attribute);
  Value eval_node(const Subscript& subscript);
  Value eval_node(const Slice& slice);
  Value eval_node(const Call& call);
  Value eval_node(const FilterExpr& filter);
  Value eval_node(const TestExpr& test);
  Arguments evaluate_arguments(const CallArguments& arguments);
  Value call_value(const Value& callee, const Arguments& arguments);
  bool compare(const Value& left, std::string_view operation, const Value& right);

  const Body& body_;
  const Dict& variables_;
  std::shared_ptr<Scope> scope_;
  Text* out_ = nullptr;
  std::vector<std::string_view> read_;  // of the variables, each once
  Value filtered_;                      // operand of the filters of a block
  int line_ = 1;
};

/// A macro as a value, with the scope it was defined in. `interpreter` and `body` outlive the rendering.
Value make_macro(Interpreter& interpreter, const MacroBody& body, std::shared_ptr<Scope> scope);

}  // namespace minfer::jinja
