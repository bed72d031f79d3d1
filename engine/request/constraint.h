#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/request/request.h"
#include "models/grammar/token_grammar.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The grammar of one request while it lives: where the text stands, which tokens may come next, and which tokens follow whatever is
/// drawn. It knows only committed tokens, so it is unchanged when its sequence is preempted. Part of LiveRequest; one thread at a time.
class Constraint {
 public:
  /// Begins at the start of the text. `ending_tokens`: the tokens that end the request,
  /// as in LiveRequest. Throws GrammarError if the grammar allows no token there.
  Constraint(const Request& request, const Tokenizer& tokenizer, std::span<const TokenId> ending_tokens);

  /// The tokens that may be drawn next, as SamplingRow::allowed; stays in place until the next advance().
  std::span<const uint32_t> allowed() const { return mask_->words; }

  /// The result of following a drawn token.
  struct Advance {
    /// Tokens that follow whatever is drawn. They count as drawn. Valid until the next advance().
    std::span<const TokenId> forced;
    bool is_whole = false;    ///< nothing can follow `forced`
    std::string error;        ///< why no token can follow; empty: one can, or none needs to
    bool is_pending = false;  ///< the slice was too small to decide: the same call continues
    size_t work = 0;          ///< done in this call
  };
  /// Follows a drawn token that ends nothing. `num_output`: tokens generated, this one included;
  /// `num_left`: how many more may come; `slice`: about how much work this call may do (see GrammarWork).
  Advance advance(TokenId token, int32_t num_output, int32_t num_left, size_t slice);
  size_t work() const { return work_.spent(); }  ///< for the newest token, in all calls

  /// The grammar. Other requests may share its states.
  const TokenGrammar& grammar() const { return matcher_.grammar(); }
  int64_t compile_ns() const { return compile_ns_; }  ///< see TokenGrammar
  int64_t time_ns() const { return time_ns_; }        ///< spent here so far

 private:
  enum class Stage : uint8_t { drawn, forced, allowed };

  void follow(TokenId token, int32_t num_output, int32_t num_left, Advance& next);
  void take_forced(int32_t most);
  std::string forced_text(bool& is_last);
  void find_allowed(int32_t num_output);
  std::shared_ptr<const TokenMask> without_end_tokens(const TokenMask& mask) const;

  const Tokenizer& tokenizer_;
  const std::vector<TokenId> ending_tokens_;
  const bool ignore_eos_;
  const int32_t min_tokens_;
  const int64_t compile_ns_;
  int64_t time_ns_ = 0;
  GrammarMatcher matcher_;
  GrammarWork work_;  ///< for the newest token
  bool is_paused_ = false;
  Stage stage_ = Stage::drawn;  ///< how far it has been followed
  std::shared_ptr<const TokenMask> mask_;
  std::vector<TokenId> forced_;
};

}  // namespace minfer
