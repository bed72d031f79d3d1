#pragma once

#include <string>
#include <vector>

#include "models/chat/jinja/syntax/ast.h"
#include "models/chat/jinja/syntax/lexer.h"

namespace minfer::jinja {

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
  ExprPtr parse_block_filters() { return parse_filters(parse_filter(nullptr)); }

  /// Counts one more until it is destroyed.
  class Within {
   public:
    explicit Within(int& count) : count_(count) { ++count_; }
    ~Within() { --count_; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    int& count_;
  };
  /// Inside conditions, an unknown filter fails only when it is reached, since templates test for features in this way.
  [[nodiscard]] Within condition() { return Within(conditions_); }
  /// One level of nesting of statements or expressions. Throws at too many.
  [[nodiscard]] Within level();

  /// Names read so far, in order.
  const std::vector<std::string>& names_read() const { return names_read_; }

 private:
  ExprPtr parse_conditional();
  ExprPtr parse_operators(int precedence);
  ExprPtr parse_compare();
  ExprPtr parse_concat();
  ExprPtr parse_unary(bool with_filters);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_postfix(ExprPtr operand);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filters_and_tests(ExprPtr operand);
  ExprPtr parse_filter(ExprPtr operand);
  ExprPtr parse_test(ExprPtr operand);
  CallArguments parse_arguments();
  std::string parse_dotted_name();

  TokenStream& tokens_;
  int conditions_ = 0;
  int level_ = 0;
  std::vector<std::string> names_read_;
};

}  // namespace minfer::jinja
