#include <algorithm>
#include <initializer_list>
#include <span>

#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/syntax/expression_parser.h"

namespace minfer::jinja {
namespace {

using Names = std::initializer_list<std::string_view>;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)), expressions_(tokens_) {}

  Body run() { return parse_body({}); }

 private:
  /// Statements up to a tag of one of these names, which becomes the current token; without names, up to the end.
  Body parse_body(Names ends) {
    Body body;
    while (!tokens_.at(TokenType::end)) {
      const Token token = tokens_.next();
      if (token.type == TokenType::data) {
        body.push_back({token.line, Data{Text(token.value)}});
      } else if (token.type == TokenType::variable_begin) {
        Output output;
        output.values.push_back(expressions_.parse_tuple());
        tokens_.expect(TokenType::variable_end, "'}}'");
        body.push_back({token.line, std::move(output)});
      } else {
        if (tokens_.at_name_of(ends)) return body;
        const ExpressionParser::Within level = expressions_.level();
        parse_statement(body, ends);
        tokens_.expect(TokenType::block_end, "'%}'");
      }
    }
    if (ends.size() > 0) tokens_.fail_expected(list(ends));
    return body;
  }

  /// The body of a block: behind its opening tag, up to one of `ends`.
  Body parse_block(Names ends) {
    tokens_.skip_symbol(":");
    tokens_.expect(TokenType::block_end, "'%}'");
    return parse_body(ends);
  }
  Body parse_block_to(std::string_view end) {
    Body body = parse_block({end});
    tokens_.next();
    return body;
  }

  /// A body that the loop around it does not reach into.
  Body parse_block_outside_loops(std::string_view end) {
    const int loops_outside = std::exchange(loops_, 0);
    Body body = parse_block_to(end);
    loops_ = loops_outside;
    return body;
  }

  static std::string list(Names names) {
    std::string text;
    for (const std::string_view name : names)
      text += fmt::format("{}'{}'", text.empty() ? "" : " or ", name);
    return text;
  }

  void parse_statement(Body& body, Names ends) {
    const Token tag = tokens_.expect(TokenType::name, "the name of a statement");
    const std::string& name = tag.value;
    const auto add = [&](auto node) { body.push_back({tag.line, std::move(node)}); };
    if (name == "if") return add(parse_if());
    if (name == "for") return add(parse_for());
    if (name == "set") return parse_set(body, tag.line);
    if (name == "macro") return add(parse_macro());
    if (name == "call") return add(parse_call());
    if (name == "filter") return add(parse_filter());
    if (name == "with") return add(parse_with());
    if (name == "print") return add(parse_print());
    // The assistant's text, marked for training. The body is rendered in its own scope.
    if (name == "generation") return add(With{{}, parse_block_outside_loops("endgeneration")});
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail_at(tag.line, "'{}' outside of a loop", name);
      return name == "break" ? add(Break{}) : add(Continue{});
    }
    if (name == "include" || name == "import" || name == "from" || name == "extends" || name == "block")
      fail_at(tag.line, "'{}' needs other templates, which a chat template does not have", name);
    fail_at(tag.line, "unknown statement '{}'{}{}", name, ends.size() > 0 ? ", looking for " : "",
            list(ends));
  }

  If parse_if() {
    const ExpressionParser::Within condition = expressions_.condition();
    If statement;
    while (true) {
      ExprPtr test = expressions_.parse_tuple(false);
      statement.branches.emplace_back(std::move(test), parse_block({"elif", "else", "endif"}));
      const Token tag = tokens_.next();
      if (tag.value == "elif") continue;
      if (tag.value == "else") statement.otherwise = parse_block_to("endif");
      return statement;
    }
  }

  For parse_for() {
    For loop;
    loop.target = parse_target(false);
    tokens_.expect_name("in");
    loop.iterable = expressions_.parse_tuple(false);
    if (tokens_.skip_name("if")) loop.test = expressions_.parse_expression();
    loop.recursive = tokens_.skip_name("recursive");
    ++loops_;
    loop.body = parse_block({"endfor", "else"});
    --loops_;
    if (tokens_.next().value == "else") loop.otherwise = parse_block_to("endfor");
    return loop;
  }

  void parse_set(Body& body, int line) {
    Target target = parse_target(true);
    if (tokens_.skip_symbol("=")) {
      body.push_back({line, Set{std::move(target), expressions_.parse_tuple()}});
      return;
    }
    Captured block{std::move(target), nullptr, {}};
    if (tokens_.at_symbol("|")) block.filter = expressions_.parse_filters(nullptr);
    block.body = parse_block_to("endset");
    body.push_back({line, std::move(block)});
  }

  Macro parse_macro() {
    Macro macro;
    macro.name = tokens_.expect(TokenType::name, "the macro's name").value;
    parse_parameters(macro);
    finish_macro(macro, "endmacro");
    return macro;
  }

  CallBlock parse_call() {
    Macro caller;
    caller.name = "caller";
    if (tokens_.at_symbol("(")) parse_parameters(caller);
    ExprPtr call = expressions_.parse_expression();
    if (!std::holds_alternative<Call>(call->node)) tokens_.fail_expected("a call of a macro");
    finish_macro(caller, "endcall");
    return {std::move(call), std::move(caller)};
  }

  void parse_parameters(Macro& macro) {
    tokens_.expect_symbol("(");
    tokens_.each_item(")", [&] {
      macro.parameters.push_back(tokens_.expect(TokenType::name, "a parameter's name").value);
      if (tokens_.skip_symbol("=")) {
        macro.defaults.push_back(expressions_.parse_expression());
      } else if (!macro.defaults.empty()) {
        tokens_.fail_expected("a default, as the parameter in front has one");
      }
    });
  }

  void finish_macro(Macro& macro, std::string_view end) {
    const size_t first_name = expressions_.names_read().size();
    macro.body = parse_block_outside_loops(end);
    const auto names = std::span(expressions_.names_read()).subspan(first_name);
    const auto reads = [&](std::string_view name) {
      return std::ranges::count(macro.parameters, name) == 0 && std::ranges::count(names, name) > 0;
    };
    macro.uses_caller = reads("caller");
    macro.uses_varargs = reads("varargs");
    macro.uses_kwargs = reads("kwargs");
  }

  Captured parse_filter() {
    ExprPtr filter = expressions_.parse_block_filters();
    return {std::nullopt, std::move(filter), parse_block_to("endfilter")};
  }

  With parse_with() {
    With with;
    while (!tokens_.at(TokenType::block_end)) {
      if (!with.variables.empty()) tokens_.expect_symbol(",");
      Target target = parse_target_item(false);
      tokens_.expect_symbol("=");
      with.variables.emplace_back(std::move(target), expressions_.parse_expression());
    }
    with.body = parse_block_to("endwith");
    return with;
  }

  Output parse_print() {
    Output output;
    while (!tokens_.at(TokenType::block_end)) {
      if (!output.values.empty()) tokens_.expect_symbol(",");
      output.values.push_back(expressions_.parse_expression());
    }
    return output;
  }

  /// `a`, `a, b`, `(a, b), c`, and with attributes `space.a`.
  Target parse_target(bool with_attributes) {
    const ExpressionParser::Within level = expressions_.level();
    Target first = parse_target_item(with_attributes);
    if (!tokens_.at_symbol(",")) return first;
    Target tuple;
    tuple.targets.push_back(std::move(first));
    while (tokens_.skip_symbol(",")) {
      if (!tokens_.at(TokenType::name) && !tokens_.at_symbol("(")) break;
      if (tokens_.at_name("in")) break;
      tuple.targets.push_back(parse_target_item(with_attributes));
    }
    return tuple;
  }

  Target parse_target_item(bool with_attributes) {
    if (tokens_.skip_symbol("(")) {
      Target inner = parse_target(with_attributes);
      tokens_.expect_symbol(")");
      return inner;
    }
    Target target;
    const Token token = tokens_.expect(TokenType::name, "a name to assign to");
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"})
      if (token.value == constant) fail_at(token.line, "cannot assign to '{}'", constant);
    target.name = token.value;
    if (with_attributes && tokens_.skip_symbol("."))
      target.attribute = tokens_.expect(TokenType::name, "an attribute's name").value;
    return target;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int loops_ = 0;  // around the statement, inside of the same macro
};

}  // namespace

Body parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace minfer::jinja
