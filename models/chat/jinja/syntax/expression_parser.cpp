#include "models/chat/jinja/syntax/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "models/chat/jinja/syntax/expression_nodes.h"

namespace minfer::jinja {
namespace {

constexpr int kMaxLevels = 120;  // of brackets, blocks and the like

}  // namespace

Value parse_integer_literal(const Token& token) {
  std::string_view digits = token.value;
  int base = 10;
  if (digits.size() > 2 && (digits[1] | 0x20) >= 'a') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : 2;
    digits.remove_prefix(2);
  }
  int64_t value = 0;
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (parsed.ec != std::errc()) fail_at(token.line, "{} does not fit into 64 bits", token.value);
  return Value(value);
}

ExpressionParser::Level::Level(ExpressionParser& parser) : parser_(parser) {
  if (parser_.level_ == kMaxLevels)
    fail_at(parser_.tokens_.line(), "nested more than {} levels deep", kMaxLevels);
  ++parser_.level_;
}

ExprPtr ExpressionParser::parse_expression(bool conditional) {
  const Level level(*this);
  return conditional ? parse_conditional() : parse_or();
}

ExprPtr ExpressionParser::parse_tuple(bool conditional, bool parenthesised) {
  const int line = tokens_.line();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (true) {
    if (tokens_.at(TokenType::variable_end) || tokens_.at(TokenType::block_end) || tokens_.at_symbol(")"))
      break;
    items.push_back(parse_expression(conditional));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (items.empty() && !parenthesised) tokens_.fail_expected("an expression");
  const int depth = depth_of(items);
  return make_node(line, depth, ListExpr{std::move(items), true});
}

ExprPtr ExpressionParser::parse_conditional() {
  int line = tokens_.line();
  ExprPtr value = parse_or();
  while (tokens_.skip_name("if")) {
    const Condition condition(*this);
    ExprPtr test = parse_or();
    ExprPtr otherwise;
    if (tokens_.skip_name("else")) {
      const Level level(*this);
      otherwise = parse_conditional();
    }
    const int depth = std::max({depth_of(test.get()), depth_of(value.get()), depth_of(otherwise.get())});
    value = make_node(line, depth, Conditional{std::move(test), std::move(value), std::move(otherwise)});
    line = tokens_.line();
  }
  return value;
}

ExprPtr ExpressionParser::parse_or() {
  return parse_binary({{"or", BinaryOp::logical_or}}, TokenType::name, &ExpressionParser::parse_and);
}

ExprPtr ExpressionParser::parse_and() {
  return parse_binary({{"and", BinaryOp::logical_and}}, TokenType::name, &ExpressionParser::parse_not);
}

ExprPtr ExpressionParser::parse_not() {
  if (!tokens_.at_name("not")) return parse_compare();
  const Level level(*this);
  const int line = tokens_.next().line;
  ExprPtr operand = parse_not();
  const int depth = operand->depth;
  return make_node(line, depth, Unary{UnaryOp::logical_not, std::move(operand)});
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = tokens_.line();
  ExprPtr first = parse_sum();
  Compare compare;
  int depth = first->depth;
  while (true) {
    std::string operation;
    const Token& token = tokens_.current();
    if (tokens_.at_symbol("==") || tokens_.at_symbol("!=") || tokens_.at_symbol("<") ||
        tokens_.at_symbol("<=") || tokens_.at_symbol(">") || tokens_.at_symbol(">=") ||
        tokens_.at_name("in")) {
      operation = token.value;
    } else if (tokens_.at_name("not") && TokenStream::is(tokens_.look(), TokenType::name, "in")) {
      operation = "not in";
      tokens_.next();
    } else {
      break;
    }
    tokens_.next();
    ExprPtr operand = parse_sum();
    depth = std::max(depth, operand->depth);
    compare.rest.emplace_back(std::move(operation), std::move(operand));
  }
  if (compare.rest.empty()) return first;
  compare.first = std::move(first);
  return make_node(line, depth, std::move(compare));
}

ExprPtr ExpressionParser::parse_sum() {
  return parse_binary({{"+", BinaryOp::add}, {"-", BinaryOp::subtract}}, TokenType::symbol,
                      &ExpressionParser::parse_concat);
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = tokens_.line();
  Concat concat;
  concat.parts.push_back(parse_product());
  while (tokens_.skip_symbol("~"))
    concat.parts.push_back(parse_product());
  if (concat.parts.size() == 1) return std::move(concat.parts.front());
  const int depth = depth_of(concat.parts);
  return make_node(line, depth, std::move(concat));
}

ExprPtr ExpressionParser::parse_product() {
  return parse_binary({{"*", BinaryOp::multiply},
                       {"/", BinaryOp::divide},
                       {"//", BinaryOp::floor_divide},
                       {"%", BinaryOp::modulo}},
                      TokenType::symbol, &ExpressionParser::parse_power);
}

ExprPtr ExpressionParser::parse_power() {
  return parse_binary({{"**", BinaryOp::power}}, TokenType::symbol, &ExpressionParser::parse_signed);
}

ExprPtr ExpressionParser::parse_binary(std::initializer_list<std::pair<std::string_view, BinaryOp>> operators,
                                       TokenType type, ExprPtr (ExpressionParser::*parse_operand)()) {
  int line = tokens_.line();
  ExprPtr left = (this->*parse_operand)();
  while (true) {
    const auto found = std::ranges::find_if(operators, [&](const auto& candidate) {
      return TokenStream::is(tokens_.current(), type, candidate.first);
    });
    if (found == operators.end()) return left;
    tokens_.next();
    ExprPtr right = (this->*parse_operand)();
    const int depth = std::max(left->depth, right->depth);
    left = make_node(line, depth, Binary{found->second, std::move(left), std::move(right)});
    line = tokens_.line();
  }
}

ExprPtr ExpressionParser::parse_signed() {
  return parse_unary(true);
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const int line = tokens_.line();
  ExprPtr operand;
  if (tokens_.at_symbol("-") || tokens_.at_symbol("+")) {
    const Level level(*this);
    const UnaryOp op = tokens_.next().value == "-" ? UnaryOp::negate : UnaryOp::plus;
    operand = parse_unary(false);
    const int depth = operand->depth;
    operand = make_node(line, depth, Unary{op, std::move(operand)});
  } else {
    operand = parse_primary();
  }
  operand = parse_postfix(std::move(operand));
  return with_filters ? parse_filters_and_tests(std::move(operand)) : std::move(operand);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token token = tokens_.current();
  switch (token.type) {
    case TokenType::name:
      return parse_name();
    case TokenType::integer:
      return make_node(tokens_.next().line, 0, Literal{parse_integer_literal(token)});
    case TokenType::real:
      return make_node(tokens_.next().line, 0, Literal{Value(std::strtod(token.value.c_str(), nullptr))});
    case TokenType::string: {
      std::string text;
      while (tokens_.at(TokenType::string))
        text += tokens_.next().value;
      return make_node(token.line, 0, Literal{make_text(text)});
    }
    default:
      break;
  }
  if (tokens_.at_symbol("[")) return parse_list();
  if (tokens_.at_symbol("{")) return parse_dict();
  if (!tokens_.skip_symbol("(")) tokens_.fail_expected("an expression");
  ExprPtr inner = parse_tuple(true, true);
  tokens_.expect_symbol(")");
  return inner;
}

ExprPtr ExpressionParser::parse_name() {
  const Token token = tokens_.next();
  const std::string& name = token.value;
  if (name == "true" || name == "True") return make_node(token.line, 0, Literal{Value(true)});
  if (name == "false" || name == "False") return make_node(token.line, 0, Literal{Value(false)});
  if (name == "none" || name == "None") return make_node(token.line, 0, Literal{Value()});
  names_read_.push_back(name);
  return make_node(token.line, 0, Name{name});
}

ExprPtr ExpressionParser::parse_list() {
  const int line = tokens_.next().line;
  ListExpr list;
  while (!tokens_.at_symbol("]")) {
    list.items.push_back(parse_expression());
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol("]");
  const int depth = depth_of(list.items);
  return make_node(line, depth, std::move(list));
}

ExprPtr ExpressionParser::parse_dict() {
  const int line = tokens_.next().line;
  DictExpr dict;
  int depth = 0;
  while (!tokens_.at_symbol("}")) {
    ExprPtr key = parse_expression();
    tokens_.expect_symbol(":");
    ExprPtr value = parse_expression();
    depth = std::max({depth, key->depth, value->depth});
    dict.entries.emplace_back(std::move(key), std::move(value));
    if (!tokens_.skip_symbol(",")) break;
  }
  tokens_.expect_symbol("}");
  return make_node(line, depth, std::move(dict));
}

}  // namespace minfer::jinja
