#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/api/request/structured_output.h"
#include "server/dialects/openai/openai.h"
#include "tests/support/models/vocabularies.h"

namespace minfer::test {

/// A chat template in C++: "[ROLE]CONTENT<|im_end|>" for every message, preceded by the tools as JSON.
/// Refuses a user's "please fail".
inline std::vector<PromptPart> render_test_chat(const nlohmann::ordered_json& variables) {
  std::vector<PromptPart> parts;
  if (variables.contains("tools")) parts.push_back({variables["tools"].dump(), false});
  for (const auto& message : variables["messages"]) {
    const std::string content = message["content"].is_null() ? "" : message["content"].get<std::string>();
    if (content == "please fail") throw Error("the template's own words");
    parts.push_back({fmt::format("[{}]", message["role"].get<std::string>()), true});
    parts.push_back({content, false});
    if (message.contains("tool_calls")) parts.push_back({message["tool_calls"].dump(), false});
    parts.push_back({"<|im_end|>", true});
  }
  if (variables["add_generation_prompt"] == true) parts.push_back({"[assistant]", true});
  return parts;
}

/// The request with its form's grammar, as a server compiles it.
inline CompletionRequest with_grammar(CompletionRequest request, const ApiContext& context) {
  if (!request.form) return request;
  GrammarCache::Outcome outcome;
  if (context.grammars->ask(request.form->key, [&](const auto& found) { outcome = found; }))
    context.grammars->compile(request.form->key, request.form->build);
  if (outcome.error) throw refusal_of(*request.form, outcome.error);
  request.grammar = outcome.grammar;
  return request;
}

/// The API of a server with the small BPE vocabulary (one token a byte except for a few words) or another, a
/// context of 1,000 tokens, and the models "small" and "other".
class TestApi {
 public:
  explicit TestApi(const Vocabulary& vocabulary = small_bpe_vocabulary())
      : tokenizer_(make_tokenizer(vocabulary)) {
    context.tokenizer = tokenizer_.get();
    context.render_chat = [this](const nlohmann::ordered_json& variables) {
      rendered = variables;
      return render_test_chat(variables);
    };
    context.vocab_size = tokenizer_->vocab_size();
    context.max_model_len = 1000;
    context.served_model_names = {"small", "other"};
    context.created = 1700000000;
    context.system_fingerprint = "minfer-test";
  }
  TestApi(const TestApi&) = delete;
  TestApi& operator=(const TestApi&) = delete;

  /// A body with a model and a prompt or message, and `members` (", "-separated JSON members) added.
  static std::string completion_body(std::string_view members = {}) {
    return body(R"("model":"small","prompt":"hello")", members);
  }
  static std::string chat_body(std::string_view members = {}) {
    return body(R"("model":"small","messages":[{"role":"user","content":"hello"}])", members);
  }

  CompletionRequest completion(std::string_view members = {}) const {
    return with_grammar(parse_completion_request(completion_body(members), context), context);
  }
  CompletionRequest chat(std::string_view members = {}) const {
    return with_grammar(parse_chat_request(chat_body(members), context), context);
  }
  CompletionRequest parse(const Dialect& dialect, std::string_view text) const {
    return dialect.parse(text, context);
  }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::string decode(const std::vector<TokenId>& ids) const { return tokenizer_->decode(ids, true); }

  ApiContext context;
  mutable nlohmann::ordered_json rendered;  ///< the template's last input

 private:
  static std::string body(std::string_view first, std::string_view members) {
    return fmt::format("{{{}{}{}}}", first, members.empty() ? "" : ",", members);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
};

/// The ApiError that `call` throws, or nothing. Other exceptions pass through.
template <class Call>
std::optional<ApiError> api_error_of(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const ApiError& error) {
    return error;
  }
  return std::nullopt;
}

}  // namespace minfer::test
