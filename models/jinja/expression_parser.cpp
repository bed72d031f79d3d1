#include "models/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "models/jinja/functions.h"

namespace minfer::jinja {
namespace {

constexpr int kMaxLevels = 120;     // of brackets, blocks and the like
constexpr int kMaxTreeDepth = 400;  // of an expression's tree, which chains such as a + b + c deepen too

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

int depth_of(const Expr* expr) {
  return expr == nullptr ? 0 : expr->depth;
}

int depth_of(const std::vector<ExprPtr>& list) {
  int depth = 0;
  for (const ExprPtr& expr : list)
    depth = std::max(depth, expr->depth);
  return depth;
}

int depth_of(const CallArguments& arguments) {
  int depth = std::max({depth_of(arguments.positional), depth_of(arguments.more_positional.get()),
                        depth_of(arguments.more_named.get())});
  for (const auto& [name, value] : arguments.named)
    depth = std::max(depth, value->depth);
  return depth;
}

ExprPtr make_node(int line, int child_depth, auto node) {
  if (child_depth >= kMaxTreeDepth) fail_at(line, "an expression of more than {} levels", kMaxTreeDepth);
  return std::make_unique<const Expr>(Expr{line, child_depth + 1, std::move(node)});
}

Value parse_integer(const Token& token) {
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

}  // namespace

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
      return make_node(tokens_.next().line, 0, Literal{parse_integer(token)});
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
  return make_node(line, depth,
                   Subscript{std::move(object), make_node(token.line, 0, Literal{parse_integer(token)})});
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
