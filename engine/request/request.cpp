#include "engine/request/request.h"

#include <array>
#include <type_traits>

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// In the field's own type: 0.01 as a float is below 0.01 as a double.
template <class T>
void check_range(const char* field, T value, std::type_identity_t<T> low, std::type_identity_t<T> high) {
  if (!(value >= low && value <= high)) {
    fail("{}: {} is out of range, expected {} to {}", field, value, low, high);
  }
}

void check_token(const char* field, TokenId token, int32_t vocab_size) {
  if (token < 0 || token >= vocab_size) {
    fail("{}: token {} is not in the vocabulary of {}", field, token, vocab_size);
  }
}

}  // namespace

std::string_view name(FinishReason reason) {
  static constexpr std::array<std::string_view, 5> kNames{"stop", "length", "cancelled", "refused", "error"};
  return kNames[static_cast<size_t>(reason)];
}

void SamplingParams::validate(int32_t vocab_size) const {
  check_range("temperature", temperature, 0.0f, 100.0f);
  check_range("top_k", top_k, 0, vocab_size);
  check_range("top_p", top_p, 0.0f, 1.0f);
  check_range("min_p", min_p, 0.0f, 1.0f);
  check_range("repetition_penalty", repetition_penalty, 0.01f, 100.0f);
  check_range("presence_penalty", presence_penalty, -2.0f, 2.0f);
  check_range("frequency_penalty", frequency_penalty, -2.0f, 2.0f);
  check_range("max_tokens", max_tokens, 0, INT32_MAX);
  check_range("min_tokens", min_tokens, 0, max_tokens);
  check_range("logprobs", logprobs, -1, 20);
  check_range("prompt_logprobs", prompt_logprobs, -1, 20);
  check_range("stream_interval", stream_interval, 0, INT32_MAX);
  for (const LogitBias& bias : logit_bias) {
    check_token("logit_bias", bias.token, vocab_size);
    check_range("logit_bias", bias.bias, -100.0f, 100.0f);
  }
  for (TokenId token : stop_token_ids)
    check_token("stop_token_ids", token, vocab_size);
  for (const std::string& text : stop) {
    if (text.empty()) fail("stop: an empty string would end every generation at once");
  }
}

}  // namespace minfer
