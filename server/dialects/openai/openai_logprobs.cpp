#include "server/dialects/openai/openai_logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

// JSON knows no infinity: this is the logprob of a token that cannot occur, as in vLLM.
constexpr float kLeastLogprob = -9999.0f;
constexpr int kDecimals = 6;

void write_logprob(JsonText& json, float logprob) {
  if (std::isnan(logprob)) {
    json.null();
    return;
  }
  const double shown = std::max(logprob, kLeastLogprob);
  json.value(shown > -5e-7 ? 0.0 : shown, kDecimals);  // which would print as -0
}

std::string text_of_bytes(std::string_view bytes) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  if (valid_utf8_prefix(bytes) == bytes.size()) return std::string(bytes);
  std::string text = "bytes:";
  for (const char c : bytes) {
    text += "\\x";
    text += kHex[static_cast<uint8_t>(c) >> 4];
    text += kHex[static_cast<uint8_t>(c) & 15];
  }
  return text;
}

/// The members of a token in a chat's logprobs.
void write_chat_token(JsonText& json, const Tokenizer& tokenizer, TokenId token, float logprob) {
  const std::string_view bytes = tokenizer.piece(token, true);
  json.field("token", text_of_bytes(bytes)).key("logprob");
  write_logprob(json, logprob);
  json.key("bytes").open('[');
  for (const char c : bytes)
    json.value(int32_t{static_cast<uint8_t>(c)});
  json.close(']');
}

void write_chat_entry(JsonText& json, const Tokenizer& tokenizer, const SampledToken& token) {
  json.open('{');
  write_chat_token(json, tokenizer, token.token, token.logprob);
  json.key("top_logprobs").open('[');
  for (const TokenLogprob& each : token.top) {
    json.open('{');
    write_chat_token(json, tokenizer, each.token, each.logprob);
    json.close('}');
  }
  json.close(']').close('}');
}

void write_alternatives(JsonText& json, const Tokenizer& tokenizer, const SampledToken& drawn) {
  if (std::isnan(drawn.logprob)) {
    json.null();
    return;
  }
  std::vector<std::string> written{token_text(tokenizer, drawn.token)};
  json.open('{').key(written.front());
  write_logprob(json, drawn.logprob);
  for (const TokenLogprob& each : drawn.top) {
    std::string text = token_text(tokenizer, each.token);
    if (std::ranges::find(written, text) != written.end()) continue;
    json.key(text);
    write_logprob(json, each.logprob);
    written.push_back(std::move(text));
  }
  json.close('}');
}

// The lists of a completion's logprobs, in order.
constexpr std::array<std::string_view, 4> kLists{"text_offset", "token_logprobs", "tokens", "top_logprobs"};

}  // namespace

std::string token_text(const Tokenizer& tokenizer, TokenId token) {
  return text_of_bytes(tokenizer.piece(token, true));
}

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

int64_t TextOffsets::push(TokenId token) {
  const int64_t begin = offset_;
  offset_ += count_characters(decoder_.push(token));
  return std::max<int64_t>(begin, 0);
}

bool LogprobsWriter::write_next(JsonText& json) {
  if (entry_ == 0) {
    if (list_ == 0) json.open('{');
    json.key(offsets_ != nullptr ? kLists[list_] : "content").open('[');
  }
  if (entry_ < tokens_.size()) {
    write_entry(json, tokens_[entry_++]);
    return true;
  }
  json.close(']');
  entry_ = 0;
  if (offsets_ != nullptr && ++list_ < kLists.size()) return true;
  if (offsets_ == nullptr) json.key("refusal").null();
  json.close('}');
  return false;
}

void LogprobsWriter::write_entry(JsonText& json, const SampledToken& token) {
  if (offsets_ == nullptr) return write_chat_entry(json, tokenizer_, token);
  if (list_ == 0) {
    json.value(offsets_->push(token.token));
  } else if (list_ == 1) {
    write_logprob(json, token.logprob);
  } else if (list_ == 2) {
    json.value(token_text(tokenizer_, token.token));
  } else {
    write_alternatives(json, tokenizer_, token);
  }
}

}  // namespace minfer
