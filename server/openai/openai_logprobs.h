#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/request.h"
#include "models/tokenizer/tokenizer.h"
#include "profiling/json/json_text.h"

namespace minfer {

/// The text of a token by itself, valid UTF-8: its bytes, or where these are not whole characters, OpenAI's
/// form "bytes:\xe2\x80" (with these very backslashes).
std::string token_text(const Tokenizer& tokenizer, TokenId token);

/// Unicode code points of valid UTF-8.
int64_t count_characters(std::string_view text);

/// Where each token's text begins in a growing answer, in characters (Unicode code points). A token that goes
/// on with a character that an earlier one began has the place of that character; one in front of the text
/// (`begin` < 0) has place 0.
class TextOffsets {
 public:
  TextOffsets(const Tokenizer& tokenizer, bool with_special, int64_t begin);
  int64_t push(TokenId token);  ///< its place
  int64_t next() const { return offset_; }

 private:
  StreamDecoder decoder_;
  int64_t offset_;
};

/// {"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}],"refusal":null},
/// an entry a token.
void write_chat_logprobs(JsonText& json, const Tokenizer& tokenizer, std::span<const SampledToken> tokens);

/// {"text_offset","token_logprobs","tokens","top_logprobs"}, an entry a token in each: the alternatives as an
/// object from text to logprob that always holds the token itself. Of alternatives with the same text it
/// holds the token itself, else the most likely. A token whose logprob is NaN (a prompt's first one, which
/// follows nothing) has null for both.
void write_completion_logprobs(JsonText& json, const Tokenizer& tokenizer,
                               std::span<const SampledToken> tokens, TextOffsets& offsets);

}  // namespace minfer
