#pragma once

#include <string>
#include <vector>

#include "models/chat/jinja/syntax/ast.h"
#include "models/chat/jinja/syntax/lexer.h"

namespace minfer::jinja {

/// The int of a token. Throws TemplateError if it does not fit into 64 bits.
Value parse_integer_literal(const Token& token);

/// Expressions of a template, by Jinja2's precedence: conditional, or, and, not, comparison, + -, ~, * / //
/// %, **, unary, then calls, subscripts, filters and tests.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenStream& tokens) : tokens_(tokens) {}

  /// Without `conditional`, an `if` behind the expression belongs to the statement.
  ExprPtr parse_expression(bool conditional = true);
  /// Expressions separated by commas form a tuple. `parenthesised`: the tuple may be empty.
  ExprPtr parse_tuple(bool conditional = true, bool parenthesised = false);
  /// `| filter | filter` applied to `operand`, which is null in blocks.
  ExprPtr parse_filters(ExprPtr operand);
  /// One filter without its bar, then further ones.
  ExprPtr parse_block_filters();

  /// Inside conditions, an unknown filter fails only when it is reached, since templates test for features in this way.
  class Condition {
   public:
    explicit Condition(ExpressionParser& parser) : parser_(parser) { ++parser_.conditions_; }
    ~Condition() { --parser_.conditions_; }
    Condition(const Condition&) = delete;
    Condition& operator=(const Condition&) = delete;

   private:
    ExpressionParser& parser_;
  };

  /// One level of nesting of statements or expressions.
  class Level {
   public:
    explicit Level(ExpressionParser& parser);
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  /// Names read since the last call, in order.
  std::vector<std::string>& names_read() { return names_read_; }

 private:
  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_signed();
  ExprPtr parse_unary(bool with_filters);
  /// Operands with operators of one precedence between them, from left to right.
  ExprPtr parse_binary(std::initializer_list<std::pair<std::string_view, BinaryOp>> operators, TokenType type,
                       ExprPtr (ExpressionParser::*parse_operand)());
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr operand);
  ExprPtr parse_filters_and_tests(ExprPtr operand);
  ExprPtr parse_filter(ExprPtr operand);
  ExprPtr parse_test(ExprPtr operand);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  CallArguments parse_arguments();
  std::string parse_dotted_name();

  TokenStream& tokens_;
  int conditions_ = 0;
  int level_ = 0;
  std::vector<std::string> names_read_;
};

}  // namespace minfer::jinja
