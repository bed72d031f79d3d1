#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/request.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// Finds the first of several stop strings in text that comes in pieces. Lets through only text that can no longer become part of a
/// stop string. Each byte costs O(number of stop strings), amortised, however often they nearly match (Knuth, Morris, Pratt 1977).
class StopMatcher {
 public:
  /// No string is empty.
  explicit StopMatcher(std::vector<std::string> stops);

  struct Result {
    std::string text;          ///< text that certainly belongs to no stop string
    std::string_view matched;  ///< the stop string that was completed; empty: none. Points into the matcher
  };

  /// Takes the next piece. A stop string that ends in a piece with `may_stop` false is text like any
  /// other; later pieces may complete one that begins there. After a match, further text is ignored.
  Result push(std::string_view piece, bool may_stop = true);
  /// Ends the text and returns what was held back.
  std::string finish();

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> border;  ///< border[i]: longest proper prefix of text[0..i] that is also its suffix
    size_t matched = 0;          ///< bytes of the pattern that the text so far ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_;
  bool done_ = false;
};

/// Collects one request's tokens until a response is due, and turns them into text then. Until then a token
/// costs nothing here, unless the request has stop strings: every token's text is searched for those.
class OutputAssembler {
 public:
  /// `tokenizer` outlives the assembler. `stream_interval` >= 1 tokens lie between two responses.
  OutputAssembler(const Tokenizer& tokenizer, const SamplingParams& params, int32_t stream_interval);

  /// Takes the next token; `visible` is false for the end token that closes a generation. True if the token completed a stop string.
  bool accept(SampledToken token, bool visible);
  /// True if a response goes out now: for the first token, and whenever the interval is full.
  bool due() const;
  int32_t stream_interval() const { return stream_interval_; }
  /// Returns what came since the last response; with `finish`, all that is left. If a stop string
  /// was hit, it is the reason, whatever `finish` says. Text never ends inside a UTF-8 character.
  RequestOutput take(std::optional<FinishReason> finish);

 private:
  void append_text(const std::string& decoded);

  StreamDecoder decoder_;
  StopMatcher stops_;
  bool has_stops_;
  bool include_stop_;
  bool wants_logprobs_;
  int32_t min_tokens_;
  int32_t stream_interval_;

  int32_t num_tokens_ = 0;  ///< accepted so far
  std::string text_;
  std::string stop_hit_;
  std::vector<TokenId> tokens_;
  std::vector<TokenId> undecoded_;
  std::vector<SampledToken> logprobs_;
  bool responded_ = false;
};

}  // namespace minfer
