#include "server/bench/prompt_history.h"

#include "kernels/error.h"

namespace minfer {

PromptHistory::PromptHistory(bool is_chat, const Tokenizer* tokenizer)
    : is_chat_(is_chat), tokenizer_(tokenizer) {}

void PromptHistory::add_prompt(const BenchPrompt& prompt) {
  if (!is_chat_) {
    tokens_.insert(tokens_.end(), prompt.tokens.begin(), prompt.tokens.end());
    if (!text_.empty()) text_ += '\n';
    text_ += prompt.text;
    return;
  }
  if (!prompt.tokens.empty()) fail("a prompt of token ids cannot be sent to a chat endpoint, expected text");
  messages_.push_back({{"role", "user"}, {"content", prompt.text}});
}

void PromptHistory::add_answer(const std::string& text) {
  if (is_chat_) {
    messages_.push_back({{"role", "assistant"}, {"content", text}});
  } else if (tokenizer_ != nullptr) {
    const std::vector<TokenId> tokens =
        tokenizer_->encode(text, {.add_special = false, .parse_special = false});
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  } else {
    text_ += text;
  }
}

void PromptHistory::add_to(nlohmann::ordered_json& body) const {
  if (is_chat_) {
    body["messages"] = messages_;
  } else if (!tokens_.empty()) {
    body["prompt"] = tokens_;
  } else {
    body["prompt"] = text_;
  }
}

}  // namespace minfer
