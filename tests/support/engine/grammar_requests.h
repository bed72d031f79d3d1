#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "models/grammar/grammar.h"
#include "models/grammar/token_grammar.h"
#include "tests/support/engine/engine_run.h"

namespace minfer::test {

/// The tokens of synthetic:tiny: first the special ones, then the bytes.
inline TokenId tiny_byte(char byte) {
  return 3 + static_cast<TokenId>(static_cast<uint8_t>(byte));
}
inline constexpr TokenId kTinyEnd = 2;

using GrammarRoot = std::function<GrammarBuilder::Expr(GrammarBuilder&)>;

/// A grammar over the vocabulary of the engine's model.
inline std::shared_ptr<TokenGrammar> grammar_for(const Engine& engine, const GrammarRoot& root) {
  GrammarBuilder builder;
  const GrammarBuilder::Expr expr = root(builder);
  auto tokens = std::make_shared<const TokenTrie>(engine.tokenizer(), engine.config().vocab_size);
  return std::make_shared<TokenGrammar>(compile_grammar(builder, expr), std::move(tokens));
}

inline GrammarRoot literal(std::string text) {
  return [text = std::move(text)](GrammarBuilder& b) { return b.literal(text); };
}

inline GrammarRoot digits(int64_t min, int64_t max) {
  return [=](GrammarBuilder& b) { return b.repeat(b.byte('0', '9'), min, max); };
}

/// `text`, then a control token that no vocabulary has, so that nothing can follow the text.
inline GrammarRoot dead_end_after(std::string text) {
  return [text = std::move(text)](GrammarBuilder& b) {
    return b.sequence({b.literal(text), b.literal("\xff<no such token>")});
  };
}

/// Texts like "abdiheh", which `count` rules match alike: each byte takes work for all of them.
inline GrammarRoot many_rules(int count) {
  return [count](GrammarBuilder& b) {
    std::vector<GrammarBuilder::Expr> rules;
    for (int i = 0; i < count; ++i) {
      const GrammarBuilder::Rule rule = b.add_rule("r");
      rules.push_back(b.reference(rule));
      const auto pair = [&](const char* open, const char* close) {
        return b.sequence({b.literal(open), rules.back(), b.literal(close)});
      };
      b.define(rule,
               b.choice({pair("a", "e"), pair("b", "f"), pair("c", "g"), pair("d", "h"), b.literal("i")}));
    }
    return b.choice(rules);
  };
}

/// Objects with names and values so long that much of their text is forced:
/// {"name": "xyz", "kind": "animal", "legs": 4}
inline GrammarRoot record_grammar() {
  return [](GrammarBuilder& b) {
    return b.sequence({b.literal(R"({"name": ")"), b.repeat(b.byte('a', 'z'), 1, 6),
                       b.literal(R"(", "kind": ")"),
                       b.choice({b.literal("animal"), b.literal("vegetable"), b.literal("mineral")}),
                       b.literal(R"(", "legs": )"), b.repeat(b.byte('0', '9'), 1, 3), b.literal("}")});
  };
}
inline constexpr const char* kRecordPattern =
    R"re(\{"name": "[a-z]{1,6}", "kind": "(animal|vegetable|mineral)", "legs": [0-9]{1,3}\})re";

/// A request drawn at temperature 1 with this seed.
inline Request constrained_request(std::string id, std::vector<TokenId> prompt,
                                   std::shared_ptr<TokenGrammar> grammar, uint64_t seed = 1) {
  Request request;
  request.id = std::move(id);
  request.prompt = std::move(prompt);
  request.sampling.seed = seed;
  request.sampling.max_tokens = 100;
  request.grammar = std::move(grammar);
  return request;
}

}  // namespace minfer::test
