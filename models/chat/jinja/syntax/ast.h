#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/chat/jinja/value/operations.h"
#include "models/chat/jinja/value/value.h"

namespace minfer::jinja {

struct Builtin;
struct Expr;
struct Statement;
using ExprPtr = std::unique_ptr<const Expr>;
using Body = std::vector<Statement>;

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr more_positional;  ///< *expression, or null
  ExprPtr more_named;       ///< **expression, or null
};

struct Literal {
  Value value;
};
struct Name {
  std::string name;
};
struct ListExpr {
  std::vector<ExprPtr> items;
  bool is_tuple = false;
};
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
struct Unary {
  UnaryOp op;
  ExprPtr operand;
};
struct Binary {
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};
struct Concat {
  std::vector<ExprPtr> parts;
};
struct Compare {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
struct Conditional {
  ExprPtr test;
  ExprPtr then;
  ExprPtr otherwise;  ///< or null
};
struct Attribute {
  ExprPtr object;
  std::string name;
};
struct Subscript {
  ExprPtr object;
  ExprPtr index;
};
struct Slice {
  ExprPtr object;
  ExprPtr begin, end, step;  ///< each may be null
};
struct Call {
  ExprPtr callee;
  CallArguments arguments;
};
/// `operand | name(arguments)` or `operand is name(arguments)`.
struct Apply {
  ExprPtr operand;        ///< null: the content of a filter block or a set block
  std::string_view kind;  ///< "filter" or "test"
  std::string name;
  const Builtin* function;  ///< null: there is none of that name
  CallArguments arguments;
};

/// `depth` is the height of the tree, which bounds every recursion over it.
struct Expr {
  int line;
  int depth;
  std::variant<Literal, Name, ListExpr, DictExpr, Unary, Binary, Concat, Compare, Conditional, Attribute,
               Subscript, Slice, Call, Apply>
      node;
};

/// The target of an assignment: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;        ///< empty: the name itself
  std::vector<Target> targets;  ///< not empty: a tuple
};

struct Data {
  Text text;
};
struct Output {
  std::vector<ExprPtr> values;
};
struct If {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExprPtr iterable;
  ExprPtr test;  ///< or null
  bool recursive = false;
  Body body;
  Body otherwise;
};
struct Set {
  Target target;
  ExprPtr value;
};
/// A filter block, or a set block.
struct Captured {
  std::optional<Target> target;  ///< nothing: the text becomes output
  ExprPtr filter;                ///< filters whose innermost operand is null; or null
  Body body;
};
struct Macro {
  std::string name;  ///< "caller" for the body of a call block
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};
struct CallBlock {
  ExprPtr call;
  Macro caller;
};
struct With {
  std::vector<std::pair<Target, ExprPtr>> variables;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  int line;
  std::variant<Data, Output, If, For, Set, Captured, Macro, CallBlock, With, Break, Continue> node;
};

}  // namespace minfer::jinja
