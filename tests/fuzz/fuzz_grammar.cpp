// Any bytes as a grammar: it is compiled, or refused within the limits. From a compiled grammar a text is drawn: each byte that the
// mask allows is accepted, and a text that a schema allows to end is JSON.
//
// Byte 0 chooses the front end. The grammar follows up to a NUL, then bytes that choose among the allowed ones.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/grammar/grammar_source.h"
#include "models/grammar/token_grammar.h"
#include "models/grammar/token_trie.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/fuzz/require.h"

namespace minfer {
namespace {

constexpr int32_t kVocabulary = 260;
/// So small that the time for an input says something about the code.
constexpr GrammarLimits kLimits{.max_expressions = 20'000, .max_states = 5'000, .max_work = 1'000'000};

GrammarBuilder::Expr add_grammar(GrammarBuilder& builder, uint8_t front_end, std::string_view text) {
  switch (front_end % 6) {
    case 0:
      return add_regex(builder, text);
    case 1:
      return add_gbnf(builder, text);
    case 4:
      return add_lark(builder, text);
    case 5:
      return add_lark(builder, text, Spelling::json_string);
    default:
      break;
  }
  const auto schema = nlohmann::ordered_json::parse(text, nullptr, false);
  if (schema.is_discarded()) throw GrammarError("no JSON");
  return add_json_schema(builder, schema, front_end % 6 == 2 ? JsonStyle::free : JsonStyle::compact,
                         "schema");
}

void draw_text(GrammarMatcher at, const TokenTrie& tokens, std::string_view choices, bool is_json) {
  std::string text;
  for (const char choice : choices) {
    if (is_json && at.may_end()) REQUIRE(nlohmann::json::accept(text));
    if (at.must_end()) return;
    const auto mask = at.mask();
    std::vector<TokenId> allowed;
    for (TokenId token = 0; token < kVocabulary; ++token) {
      if (mask->allows(token) && tokens.bytes(token).size() == 1) allowed.push_back(token);
    }
    if (allowed.empty()) return;  // only longer tokens and the end
    const TokenId token = allowed[static_cast<uint8_t>(choice) % allowed.size()];
    text += tokens.bytes(token);
    REQUIRE(at.accept(token));
  }
}

void check(uint8_t front_end, std::string_view text, std::string_view choices) {
  static const auto tokens =
      std::make_shared<const TokenTrie>(*make_byte_tokenizer(kVocabulary), kVocabulary);
  GrammarBuilder builder(kLimits);
  const GrammarBuilder::Expr root = add_grammar(builder, front_end, text);
  const auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, root), tokens);
  draw_text(GrammarMatcher(grammar), *tokens, choices.substr(0, 200),
            front_end % 6 == 2 || front_end % 6 == 3);
}

}  // namespace
}  // namespace minfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t separator = std::min(bytes.find('\0'), bytes.size());
  try {
    minfer::check(data[0], bytes.substr(0, separator), bytes.substr(std::min(separator + 1, bytes.size())));
  } catch (const minfer::GrammarError&) {
    return 0;  // refused
  }
  return 0;
}
