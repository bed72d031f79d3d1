#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/request/request.h"
#include "models/tokenizer/tokenizer.h"
#include "profiling/json/json_text.h"

namespace minfer {

/// The text of a token by itself, valid UTF-8: its bytes, or where these are not whole characters, OpenAI's
/// form "bytes:\xe2\x80" (with these very backslashes).
std::string token_text(const Tokenizer& tokenizer, TokenId token);

/// Unicode code points of valid UTF-8.
int64_t count_characters(std::string_view text);

/// Where each token's text begins in a growing answer, in characters (Unicode code points). A token that goes on with a character that an
/// earlier one began has the place of that character; one in front of the text (`begin` < 0) has place 0.
class TextOffsets {
 public:
  TextOffsets(const Tokenizer& tokenizer, bool with_special, int64_t begin);
  int64_t push(TokenId token);  ///< its place
  int64_t next() const { return offset_; }

 private:
  StreamDecoder decoder_;
  int64_t offset_;
};

/// Writes the logprobs of an answer's tokens, an entry at a time, so that a long answer can be written in
/// pieces. The tokens and the tokeniser outlive it. One thread at a time.
///
/// Of a chat: {"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}],
/// "refusal":null}, an entry a token.
/// Of a completion: {"text_offset","token_logprobs","tokens","top_logprobs"}, an entry a token in each: the
/// alternatives as an object from text to logprob that always holds the token itself. Of alternatives with the
/// same text it holds the token itself, else the most likely. A token whose logprob is NaN (a prompt's first
/// one, which follows nothing) has null for both.
class LogprobsWriter {
 public:
  /// `offsets`: of a completion, where its tokens begin; null: of a chat.
  LogprobsWriter(const Tokenizer& tokenizer, std::span<const SampledToken> tokens, TextOffsets* offsets)
      : tokenizer_(tokenizer), tokens_(tokens), offsets_(offsets) {}

  /// Writes what comes next: an entry, or what stands between two lists. False: that was the end.
  bool write_next(JsonText& json);

 private:
  void write_entry(JsonText& json, const SampledToken& token);

  const Tokenizer& tokenizer_;
  const std::span<const SampledToken> tokens_;
  TextOffsets* const offsets_;
  size_t list_ = 0;  ///< that is being written
  size_t entry_ = 0;
  bool in_list_ = false;
};

/// The same at once.
void write_chat_logprobs(JsonText& json, const Tokenizer& tokenizer, std::span<const SampledToken> tokens);
void write_completion_logprobs(JsonText& json, const Tokenizer& tokenizer,
                               std::span<const SampledToken> tokens, TextOffsets& offsets);

}  // namespace minfer
