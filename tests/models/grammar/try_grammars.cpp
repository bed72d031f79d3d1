// Tries texts on many grammars in one process, for tests/checks/check_grammars.py:
//   try_grammars < INPUTS
// INPUTS has one JSON object a line: a grammar as "schema" (and "style": "free" or "compact"), "regex", "gbnf" or "lark"; "texts" to try;
// "walks": the number of random texts of the grammar to make, behind "prefix" if there is one, with the seed "seed". Each prints one line:
// {"accepted": [BOOL, ...], "walked": [TEXT, ...]} or {"error": MESSAGE}. A walk that does not come to an end is left out.
//   try_grammars VOCABULARY.gguf < INPUTS
// has the tokens of that file instead of bytes. Then "steps" asks for a random walk of that many tokens: {"steps": [{"mask": HEX,
// "token": ID, "us": TIME}, ...]}, with the mask's words before each token, and "compile_us"; -1: the text ended. The first line
// lists the tokens: {"tokens": [HEX, ...], "end": [ID, ...]}, control tokens with ff in front. For tests/checks/compare_masks.py.
#include <algorithm>
#include <chrono>
#include <iostream>
#include <optional>
#include <random>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/gguf/gguf.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/token_grammar.h"
#include "models/grammar/token_trie.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kVocabulary = 260;
constexpr size_t kWanderingBytes = 60;  // a longer walk takes the shortest way out that it sees
constexpr size_t kMostBytes = 2'000;

GrammarBuilder::Expr add_grammar(GrammarBuilder& builder, const Json& input) {
  if (input.contains("regex")) return add_regex(builder, input["regex"].get<std::string>());
  if (input.contains("gbnf")) return add_gbnf(builder, input["gbnf"].get<std::string>());
  if (input.contains("lark")) return add_lark(builder, input["lark"].get<std::string>());
  const bool is_free = input.value("style", "compact") == "free";
  return add_json_schema(builder, input.at("schema"), is_free ? JsonStyle::free : JsonStyle::compact);
}

/// One of the allowed bytes; in a long text one that closes something.
char drawn(const std::vector<char>& allowed, bool is_long, std::mt19937_64& random) {
  if (is_long) {
    for (const char c : std::string_view("}]\":019eln.-")) {
      if (std::ranges::find(allowed, c) != allowed.end()) return c;
    }
  }
  std::vector<char> ascii;  // most of the bytes that strings allow are no ASCII
  std::ranges::copy_if(allowed, std::back_inserter(ascii), [](char c) { return (c & 0x80) == 0; });
  const std::vector<char>& from = ascii.empty() || random() % 10 == 0 ? allowed : ascii;
  return from[random() % from.size()];
}

std::optional<std::string> walk(GrammarMatcher at, const TokenTrie& tokens, std::mt19937_64& random) {
  std::string text;
  while (text.size() < kMostBytes) {
    const bool is_long = text.size() >= kWanderingBytes;
    if (at.may_end() && (is_long || at.must_end() || random() % 4 == 0)) return text;
    const auto mask = at.mask();
    std::vector<char> allowed;
    for (TokenId token = 0; token < kVocabulary; ++token) {
      if (tokens.bytes(token).size() == 1 && mask->allows(token)) allowed.push_back(tokens.bytes(token)[0]);
    }
    if (allowed.empty()) throw GrammarError("a walk came where no byte is allowed: " + text);
    text += drawn(allowed, is_long, random);
    if (!at.accept_bytes(std::string_view(text).substr(text.size() - 1)))
      throw GrammarError("the mask allows a byte that is refused: " + text);
  }
  return std::nullopt;
}

/// Draws tokens among those allowed, and returns them with the masks that allowed them.
Json token_walk(const std::shared_ptr<TokenGrammar>& grammar, int num_steps, std::mt19937_64& random) {
  GrammarMatcher at(grammar);
  Json steps = Json::array();
  for (int i = 0; i < num_steps; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const std::shared_ptr<const TokenMask> mask = at.mask();
    const std::chrono::duration<double, std::micro> us = std::chrono::steady_clock::now() - begin;
    std::vector<TokenId> allowed;
    std::string hex;
    for (const uint32_t word : mask->words)
      hex += fmt::format("{:08x}", word);
    for (TokenId token = 0; token < grammar->tokens().vocab_size(); ++token) {
      if (mask->allows(token) && !grammar->tokens().bytes(token).empty()) allowed.push_back(token);
    }
    std::erase_if(allowed, [&](TokenId token) {
      return std::ranges::find(grammar->tokens().end_tokens(), token) != grammar->tokens().end_tokens().end();
    });
    const TokenId token = allowed.empty() ? -1 : allowed[random() % allowed.size()];
    steps.push_back({{"mask", hex}, {"token", token}, {"us", us.count()}});
    if (token < 0 || !at.accept(token)) break;
  }
  return steps;
}

Json result_of(const Json& input, const std::shared_ptr<const TokenTrie>& tokens) {
  const auto begin_compiling = std::chrono::steady_clock::now();
  GrammarBuilder builder;
  const GrammarBuilder::Expr root = add_grammar(builder, input);
  const auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, root), tokens);
  const std::chrono::duration<double, std::micro> compile_us =
      std::chrono::steady_clock::now() - begin_compiling;
  Json accepted = Json::array(), walked = Json::array();
  for (const Json& text : input.value("texts", Json::array())) {
    GrammarMatcher at(grammar);
    accepted.push_back(at.accept_bytes(text.get<std::string>()) && at.may_end());
  }
  std::mt19937_64 random(input.value("seed", 0u));
  const std::string prefix = input.value("prefix", "");
  GrammarMatcher begin(grammar);
  if (!begin.accept_bytes(prefix)) throw GrammarError("the grammar does not allow the prefix " + prefix);
  for (int i = 0; i < input.value("walks", 0); ++i) {
    if (const auto text = walk(begin, *tokens, random)) walked.push_back(prefix + *text);
  }
  Json result = {{"accepted", accepted}, {"walked", walked}};
  if (const int steps = input.value("steps", 0); steps > 0) {
    result["steps"] = token_walk(grammar, steps, random);
    result["compile_us"] = compile_us.count();
  }
  return result;
}

void list_tokens(const TokenTrie& tokens) {
  Json list = Json::array();
  for (TokenId token = 0; token < tokens.vocab_size(); ++token) {
    std::string hex;
    for (const char c : tokens.bytes(token))
      hex += fmt::format("{:02x}", static_cast<uint8_t>(c));
    list.push_back(hex);
  }
  std::cout << Json({{"tokens", list}, {"end", tokens.end_tokens()}}).dump() << std::endl;
}

void try_all(const Tokenizer& tokenizer, bool lists_tokens) {
  const auto tokens = std::make_shared<const TokenTrie>(tokenizer, tokenizer.vocab_size());
  if (lists_tokens) list_tokens(*tokens);
  for (std::string line; std::getline(std::cin, line);) {
    Json result;
    try {
      result = result_of(Json::parse(line), tokens);
    } catch (const Error& error) {
      result = {{"error", error.what()}};
    }
    std::cout << result.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
}

}  // namespace
}  // namespace minfer

int main(int argc, char** argv) {
  using namespace minfer;
  if (argc < 2) {
    try_all(*make_byte_tokenizer(kVocabulary), false);
  } else {
    try_all(*make_tokenizer(GgufFile::open(argv[1])), true);
  }
  return 0;
}
