#include "models/chat/jinja/syntax/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "models/chat/jinja/builtins/functions.h"

namespace minfer::jinja {
namespace {

constexpr int kMaxLevels = 120;     // of brackets, blocks and the like
constexpr int kMaxTreeDepth = 400;  // chains such as a + b + c deepen the tree like brackets

struct Operator {
  int precedence;
  TokenType type;
  std::string_view symbol;
  BinaryOp op;
};

// A looser operator has the lower precedence. Between these operators stand those that have functions of their own.
enum Precedence { kOr, kAnd, kNot, kCompare, kSum, kConcat, kProduct, kPower, kSigned };
constexpr Operator kOperators[] = {
    {kOr, TokenType::name, "or", BinaryOp::logical_or},
    {kAnd, TokenType::name, "and", BinaryOp::logical_and},
    {kSum, TokenType::symbol, "+", BinaryOp::add},
    {kSum, TokenType::symbol, "-", BinaryOp::subtract},
    {kProduct, TokenType::symbol, "*", BinaryOp::multiply},
    {kProduct, TokenType::symbol, "/", BinaryOp::divide},
    {kProduct, TokenType::symbol, "//", BinaryOp::floor_divide},
    {kProduct, TokenType::symbol, "%", BinaryOp::modulo},
    {kPower, TokenType::symbol, "**", BinaryOp::power},
};

/// The levels below a node that has this part.
int depth_of(const auto&) {
  return 0;
}
int depth_of(const ExprPtr& expr) {
  return expr == nullptr ? 0 : expr->depth;
}
template <class First>
int depth_of(const std::pair<First, ExprPtr>& entry) {
  return std::max(depth_of(entry.first), depth_of(entry.second));
}
template <class Part>
int depth_of(const std::vector<Part>& parts) {
  int depth = 0;
  for (const Part& part : parts)
    depth = std::max(depth, depth_of(part));
  return depth;
}
int depth_of(const CallArguments& arguments) {
  return std::max({depth_of(arguments.positional), depth_of(arguments.named),
                   depth_of(arguments.more_positional), depth_of(arguments.more_named)});
}

/// Throws if the tree becomes too deep.
template <class Node, class... Parts>
ExprPtr make_node(int line, Parts&&... parts) {
  const int depth = std::max({0, depth_of(parts)...}) + 1;
  if (depth > kMaxTreeDepth) fail_at(line, "an expression of more than {} levels", kMaxTreeDepth);
  return std::make_unique<const Expr>(Expr{line, depth, Node{std::forward<Parts>(parts)...}});
}

/// The int of a token. Throws TemplateError if it does not fit into 64 bits.
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

bool starts_operand(const Token& token) {
  if (token.type == TokenType::symbol) return token.value == "(" || token.value == "[" || token.value == "{";
  return token.type == TokenType::name || token.type == TokenType::string ||
         token.type == TokenType::integer || token.type == TokenType::real;
}

}  // namespace

ExpressionParser::Within ExpressionParser::level() {
  if (level_ == kMaxLevels) fail_at(tokens_.line(), "nested more than {} levels deep", kMaxLevels);
  return Within(level_);
}

ExprPtr ExpressionParser::parse_expression(bool conditional) {
  const Within nested = level();
  return conditional ? parse_conditional() : parse_operators(kOr);
}

ExprPtr ExpressionParser::parse_tuple(bool conditional, bool parenthesised) {
  const int line = tokens_.line();
  std::vector<ExprPtr> items;
  bool is_tuple = false;
  while (!tokens_.at(TokenType::variable_end) && !tokens_.at(TokenType::block_end) &&
         !tokens_.at_symbol(")")) {
    items.push_back(parse_expression(conditional));
    if (!tokens_.skip_symbol(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && !items.empty()) return std::move(items.front());
  if (items.empty() && !parenthesised) tokens_.fail_expected("an expression");
  return make_node<ListExpr>(line, std::move(items), true);
}

ExprPtr ExpressionParser::parse_conditional() {
  int line = tokens_.line();
  ExprPtr value = parse_operators(kOr);
  while (tokens_.skip_name("if")) {
    const Within unsure = condition();
    ExprPtr test = parse_operators(kOr);
    ExprPtr otherwise;
    if (tokens_.skip_name("else")) {
      const Within nested = level();
      otherwise = parse_conditional();
    }
    value = make_node<Conditional>(line, std::move(test), std::move(value), std::move(otherwise));
    line = tokens_.line();
  }
  return value;
}

/// Operands with operators of one precedence between them, from left to right.
ExprPtr ExpressionParser::parse_operators(int precedence) {
  if (precedence == kCompare) return parse_compare();
  if (precedence == kConcat) return parse_concat();
  if (precedence == kSigned) return parse_unary(true);
  int line = tokens_.line();
  if (precedence == kNot && tokens_.skip_name("not")) {
    const Within nested = level();
    return make_node<Unary>(line, UnaryOp::logical_not, parse_operators(kNot));
  }
  ExprPtr left = parse_operators(precedence + 1);
  while (true) {
    const auto* found = std::ranges::find_if(kOperators, [&](const Operator& candidate) {
      return candidate.precedence == precedence &&
             TokenStream::is(tokens_.current(), candidate.type, candidate.symbol);
    });
    if (found == std::end(kOperators)) return left;
    tokens_.next();
    ExprPtr right = parse_operators(precedence + 1);
    left = make_node<Binary>(line, found->op, std::move(left), std::move(right));
    line = tokens_.line();
  }
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = tokens_.line();
  ExprPtr first = parse_operators(kSum);
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
  while (true) {
    const Token& token = tokens_.current();
    const bool negated = tokens_.at_name("not") && TokenStream::is(tokens_.look(), TokenType::name, "in");
    const bool is_operator = token.type == TokenType::symbol || tokens_.at_name("in");
    const auto* found = std::ranges::find(kCompareSymbols, negated       ? "not in"
                                                           : is_operator ? token.value
                                                                         : std::string());
    if (found == std::end(kCompareSymbols)) break;
    tokens_.next();
    if (negated) tokens_.next();
    rest.emplace_back(static_cast<CompareOp>(found - kCompareSymbols), parse_operators(kSum));
  }
  return rest.empty() ? std::move(first) : make_node<Compare>(line, std::move(first), std::move(rest));
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = tokens_.line();
  std::vector<ExprPtr> parts;
  do
    parts.push_back(parse_operators(kProduct));
  while (tokens_.skip_symbol("~"));
  return parts.size() == 1 ? std::move(parts.front()) : make_node<Concat>(line, std::move(parts));
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  const int line = tokens_.line();
  ExprPtr operand;
  if (tokens_.at_symbol("-") || tokens_.at_symbol("+")) {
    const Within nested = level();
    const UnaryOp op = tokens_.next().value == "-" ? UnaryOp::negate : UnaryOp::plus;
    operand = make_node<Unary>(line, op, parse_unary(false));
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
      return make_node<Literal>(tokens_.next().line, parse_integer_literal(token));
    case TokenType::real:
      return make_node<Literal>(tokens_.next().line, Value(std::strtod(token.value.c_str(), nullptr)));
    case TokenType::string: {
      std::string text;
      while (tokens_.at(TokenType::string))
        text += tokens_.next().value;
      return make_node<Literal>(token.line, make_text(text));
    }
    default:
      break;
  }
  if (tokens_.skip_symbol("[")) {
    std::vector<ExprPtr> items;
    tokens_.each_item("]", [&] { items.push_back(parse_expression()); });
    return make_node<ListExpr>(token.line, std::move(items));
  }
  if (tokens_.skip_symbol("{")) {
    std::vector<std::pair<ExprPtr, ExprPtr>> entries;
    tokens_.each_item("}", [&] {
      ExprPtr key = parse_expression();
      tokens_.expect_symbol(":");
      entries.emplace_back(std::move(key), parse_expression());
    });
    return make_node<DictExpr>(token.line, std::move(entries));
  }
  if (!tokens_.skip_symbol("(")) tokens_.fail_expected("an expression");
  ExprPtr inner = parse_tuple(true, true);
  tokens_.expect_symbol(")");
  return inner;
}

ExprPtr ExpressionParser::parse_name() {
  const Token token = tokens_.next();
  const std::string& name = token.value;
  if (name == "true" || name == "True") return make_node<Literal>(token.line, Value(true));
  if (name == "false" || name == "False") return make_node<Literal>(token.line, Value(false));
  if (name == "none" || name == "None") return make_node<Literal>(token.line, Value());
  names_read_.push_back(name);
  return make_node<Name>(token.line, name);
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr operand) {
  while (true) {
    const int line = tokens_.line();
    if (tokens_.at_symbol("[")) {
      operand = parse_subscript(std::move(operand));
    } else if (tokens_.at_symbol("(")) {
      operand = parse_call(std::move(operand));
    } else if (!tokens_.skip_symbol(".")) {
      return operand;
    } else if (const Token token = tokens_.next(); token.type == TokenType::name) {
      operand = make_node<Attribute>(line, std::move(operand), token.value);
    } else if (token.type == TokenType::integer) {
      operand = make_node<Subscript>(line, std::move(operand),
                                     make_node<Literal>(token.line, parse_integer_literal(token)));
    } else {
      fail_at(token.line, "expected a name or a number behind '.', found {}", describe(token));
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = tokens_.next().line;
  const auto at_end = [this] { return tokens_.at_symbol("]") || tokens_.at_symbol(":"); };
  ExprPtr begin = tokens_.at_symbol(":") ? nullptr : parse_expression();
  if (tokens_.skip_symbol("]")) return make_node<Subscript>(line, std::move(object), std::move(begin));
  tokens_.expect_symbol(":");
  ExprPtr end = at_end() ? nullptr : parse_expression();
  ExprPtr step;
  if (tokens_.skip_symbol(":") && !at_end()) step = parse_expression();
  tokens_.expect_symbol("]");
  return make_node<Slice>(line, std::move(object), std::move(begin), std::move(end), std::move(step));
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  const int line = tokens_.line();
  return make_node<Call>(line, std::move(callee), parse_arguments());
}

CallArguments ExpressionParser::parse_arguments() {
  tokens_.expect_symbol("(");
  CallArguments arguments;
  tokens_.each_item(")", [&] {
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
  });
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
    if (tokens_.at_symbol("|")) {
      operand = parse_filters(std::move(operand));
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

ExprPtr ExpressionParser::parse_filter(ExprPtr operand) {
  const int line = tokens_.line();
  const std::string name = parse_dotted_name();
  const Builtin* filter = find_filter(name);
  if (conditions_ == 0 && filter == nullptr) fail_at(line, "no filter named '{}'", name);
  CallArguments arguments;
  if (tokens_.at_symbol("(")) arguments = parse_arguments();
  return make_node<Apply>(line, std::move(operand), "filter", name, filter, std::move(arguments));
}

ExprPtr ExpressionParser::parse_test(ExprPtr operand) {
  const int line = tokens_.next().line;
  const bool negated = tokens_.skip_name("not");
  const std::string name = parse_dotted_name();
  const Builtin* test = find_test(name);
  if (conditions_ == 0 && test == nullptr) fail_at(line, "no test named '{}'", name);
  CallArguments arguments;
  if (tokens_.at_symbol("(")) {
    arguments = parse_arguments();
  } else if (starts_operand(tokens_.current()) && !tokens_.at_name_of({"else", "or", "and"})) {
    if (tokens_.at_name("is")) fail_at(line, "tests with 'is' cannot be chained");
    const Within nested = level();
    arguments.positional.push_back(parse_postfix(parse_primary()));
  }
  ExprPtr tested = make_node<Apply>(line, std::move(operand), "test", name, test, std::move(arguments));
  return negated ? make_node<Unary>(line, UnaryOp::logical_not, std::move(tested)) : std::move(tested);
}

}  // namespace minfer::jinja
