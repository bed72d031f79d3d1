#pragma once

#include <nlohmann/json.hpp>

#include "server/bench/bench_workload.h"

namespace minfer {

/// What has been said in a conversation, as a completion request has it: tokens or text in `prompt`, or
/// `messages` of a chat.
class PromptHistory {
 public:
  /// `tokenizer` makes answers into tokens; null if the prompts are text.
  PromptHistory(bool is_chat, const Tokenizer* tokenizer);

  /// Throws Error for tokens in a chat, whose messages are text.
  void add_prompt(const BenchPrompt& prompt);
  void add_answer(const std::string& text);
  int64_t num_tokens() const { return std::ssize(tokens_); }  ///< 0 if it is text
  void add_to(nlohmann::ordered_json& body) const;

 private:
  bool is_chat_;
  const Tokenizer* tokenizer_;
  std::vector<TokenId> tokens_;
  std::string text_;
  nlohmann::ordered_json messages_ = nlohmann::ordered_json::array();
};

}  // namespace minfer
