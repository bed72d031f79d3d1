// The parts that may follow an operand: attributes, subscripts, calls, filters and tests.
#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/syntax/expression_nodes.h"
#include "models/chat/jinja/syntax/expression_parser.h"

namespace minfer::jinja {
namespace {

bool starts_operand(const Token& token) {
  switch (token.type) {
    case TokenType::name:
    case TokenType::string:
    case TokenType::integer:
    case TokenType::real:
      return true;
    case TokenType::symbol:
      return token.value == "(" || token.value == "[" || token.value == "{";
    default:
      return false;
  }
}

}  // namespace

ExprPtr ExpressionParser::parse_postfix(ExprPtr operand) {
  while (true) {
    if (tokens_.at_symbol(".")) {
      operand = parse_attribute(std::move(operand));
    } else if (tokens_.at_symbol("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (tokens_.at_symbol("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = tokens_.next().line;
  const int depth = object->depth;
  const Token token = tokens_.next();
  if (token.type == TokenType::name) return make_node(line, depth, Attribute{std::move(object), token.value});
  if (token.type != TokenType::integer)
    fail_at(token.line, "expected a name or a number behind '.', found {}", describe(token));
  return make_node(
      line, depth,
      Subscript{std::move(object), make_node(token.line, 0, Literal{parse_integer_literal(token)})});
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = tokens_.next().line;
  const auto at_end = [this] { return tokens_.at_symbol("]") || tokens_.at_symbol(":"); };
  ExprPtr begin = tokens_.at_symbol(":") ? nullptr : parse_expression();
  if (tokens_.skip_symbol("]")) {
    const int depth = std::max(object->depth, begin->depth);
    return make_node(line, depth, Subscript{std::move(object), std::move(begin)});
  }
  tokens_.expect_symbol(":");
  ExprPtr end = at_end() ? nullptr : parse_expression();
  ExprPtr step;
  if (tokens_.skip_symbol(":") && !at_end()) step = parse_expression();
  tokens_.expect_symbol("]");
  const int depth =
      std::max({object->depth, depth_of(begin.get()), depth_of(end.get()), depth_of(step.get())});
  return make_node(line, depth, Slice{std::move(object), std::move(begin), std::move(end), std::move(step)});
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const int line = tokens_.line();
  CallArguments arguments = parse_arguments();
  const int depth = std::max(callee->depth, depth_of(arguments));
  return make_node(line, depth, Call{std::move(callee), std::move(arguments)});
}

CallArguments ExpressionParser::parse_arguments() {
  tokens_.expect_symbol("(");
  CallArguments arguments;
  while (!tokens_.at_symbol(")")) {
    const bool is_named =
        tokens_.at(TokenType::name) && TokenStream::is(tokens_.look(), TokenType::symbol, "=");
    const bool first_star = arguments.more_positional == nullptr && arguments.more_named == nullptr;
    const int line = tokens_.line();
    if (first_star && tokens_.skip_symbol("*")) {
      arguments.more_positional = parse_expression();
    } else if (arguments.more_named == nullptr && tokens_.skip_symbol("**")) {
      arguments.more_named = parse_expression();
    } else if (is_named && arguments.more_named == nullptr) {
      std::string name = tokens_.next().value;
      tokens_.next();
      arguments.named.emplace_back(std::move(name), parse_expression());
    } else if (first_star && arguments.named.empty()) {
      arguments.positional.push_back(parse_expression());
    } else {
      fail_at(line, "arguments of a call: expected positional ones, then names, *list and **dict");
    }
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol(")");
  return arguments;
}

std::string ExpressionParser::parse_dotted_name() {
  std::string name = tokens_.expect(TokenType::name, "a name").value;
  while (tokens_.skip_symbol("."))
    name += fmt::format(".{}", tokens_.expect(TokenType::name, "a name").value);
  return name;
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr operand) {
  while (true) {
    if (tokens_.skip_symbol("|")) {
      operand = parse_filter(std::move(operand));
    } else if (tokens_.at_name("is")) {
      operand = parse_test(std::move(operand));
    } else if (tokens_.at_symbol("(")) {
      operand = parse_call(std::move(operand));
    } else {
      return operand;
    }
  }
}

ExprPtr ExpressionParser::parse_filters(ExprPtr operand) {
  while (tokens_.skip_symbol("|"))
    operand = parse_filter(std::move(operand));
  return operand;
}

ExprPtr ExpressionParser::parse_block_filters() {
  return parse_filters(parse_filter(nullptr));
}

ExprPtr ExpressionParser::parse_filter(ExprPtr operand) {
  const int line = tokens_.line();
  FilterExpr filter{std::move(operand), parse_dotted_name(), {}};
  if (conditions_ == 0 && find_filter(filter.name) == nullptr)
    fail_at(line, "no filter named '{}'", filter.name);
  if (tokens_.at_symbol("(")) filter.arguments = parse_arguments();
  const int depth = std::max(depth_of(filter.operand.get()), depth_of(filter.arguments));
  return make_node(line, depth, std::move(filter));
}

ExprPtr ExpressionParser::parse_test(ExprPtr operand) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  TestExpr test{std::move(operand), parse_dotted_name(), {}};
  if (conditions_ == 0 && find_test(test.name) == nullptr) fail_at(line, "no test named '{}'", test.name);
  if (tokens_.at_symbol("(")) {
    test.arguments = parse_arguments();
  } else if (starts_operand(tokens_.current()) && !tokens_.at_name_of({"else", "or", "and"})) {
    if (tokens_.at_name("is")) fail_at(line, "tests with 'is' cannot be chained");
    const Level level(*this);
    test.arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  const int depth = std::max(test.operand->depth, depth_of(test.arguments));
  ExprPtr tested = make_node(line, depth, std::move(test));
  if (!negated) return tested;
  return make_node(line, depth + 1, Unary{UnaryOp::logical_not, std::move(tested)});
}

}  // namespace minfer::jinja
