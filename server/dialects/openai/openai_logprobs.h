#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/request/request.h"
#include "models/tokenizer/tokenizer.h"
#include "profiling/json/json_text.h"

namespace minfer {

/// The text of a token by itself, valid UTF-8: its bytes, or if these are not
/// whole characters, OpenAI's form "bytes:\xe2\x80" (with these very backslashes).
std::string token_text(const Tokenizer& tokenizer, TokenId token);

/// Unicode code points of valid UTF-8.
int64_t count_characters(std::string_view text);

/// Where each token's text begins in a growing answer, in characters (Unicode code points). A token that continues a
/// character of an earlier token has the place of that character. A token in front of the text (`begin` < 0) has place 0.
class TextOffsets {
 public:
  TextOffsets(const Tokenizer& tokenizer, bool with_special, int64_t begin)
      : decoder_(tokenizer, with_special), offset_(begin) {}
  int64_t push(TokenId token);  ///< its place
  int64_t next() const { return offset_; }

 private:
  StreamDecoder decoder_;
  int64_t offset_;
};

/// Writes the logprobs of an answer's tokens, one entry at a time, so that a long answer
/// can be written in pieces. The tokens and the tokeniser outlive it. One thread at a time.
///
/// A chat's: {"content":[{"token","logprob","bytes","top_logprobs":[{"token","logprob","bytes"}]}],
/// "refusal":null}, one entry for each token.
/// A completion's: {"text_offset","token_logprobs","tokens","top_logprobs"}, each with one entry
/// for each token. The alternatives are an object from text to logprob that always holds the token
/// itself. If alternatives have the same text, it holds the token itself, else the most likely. If
/// a token's logprob is NaN (a prompt's first token, which follows nothing), both are null.
class LogprobsWriter {
 public:
  /// `offsets`: where a completion's tokens begin; null: a chat.
  LogprobsWriter(const Tokenizer& tokenizer, std::span<const SampledToken> tokens, TextOffsets* offsets)
      : tokenizer_(tokenizer), tokens_(tokens), offsets_(offsets) {}

  /// Writes the next piece: an entry, or the text between two lists. Returns false at the end.
  bool write_next(JsonText& json);
  void write_all(JsonText& json) {
    while (write_next(json)) {
    }
  }

 private:
  void write_entry(JsonText& json, const SampledToken& token);

  const Tokenizer& tokenizer_;
  const std::span<const SampledToken> tokens_;
  TextOffsets* const offsets_;
  size_t list_ = 0;   ///< that is being written
  size_t entry_ = 0;  ///< of it, the next
};

}  // namespace minfer
