#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/options/speculation_options.h"
#include "engine/request/constraint.h"
#include "engine/request/drafter.h"
#include "engine/request/output_assembler.h"
#include "engine/request/request.h"
#include "engine/request/sampling_state.h"
#include "engine/request/sequence.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// A request while it lives: its sequence, how its tokens are drawn and how they become responses.
struct LiveRequest : Sequence {
  LiveRequest(const Request& request, const Tokenizer& tokenizer, uint64_t seed, int32_t stream_interval);
  bool ends_with(TokenId token) const;
  /// True if the token's text belongs to the answer. An end token's does not; a stop token's does if the request wants to see it.
  bool shows(TokenId token) const;
  /// The output tokens that outputs may hold. The tokens behind them wait for their logprobs.
  int32_t num_told_tokens() const { return std::max(0, num_output_tokens() - num_unscored); }

  /// The vocabulary's end tokens (unless ignored; with a grammar always) and the request's stop tokens.
  std::vector<TokenId> ending_tokens;
  std::vector<TokenId> shown_stops;  ///< of these, the tokens whose text belongs to the answer
  SamplingState sampling;
  std::optional<Constraint> constraint;  ///< of its grammar, if it has one
  /// True if forced tokens are likely to follow the next token of its grammar, as they followed the
  /// last one. The tokens that a step launched ahead would draw behind it would then be dropped.
  bool expects_forced = true;
  bool has_heavy_grammar = false;  ///< its newest token took much work (see GrammarRows)
  const bool scores_prompt;
  const int32_t num_logprobs;                 ///< SamplingParams::logprobs
  GivenScores scores;                         ///< scores of the tokens that are unscored, or were last
  std::vector<SampledToken> prompt_logprobs;  ///< logprobs known so far, in no output yet
  OutputAssembler output;
  std::shared_ptr<const ClientWait> client_wait;  ///< null: not known
  std::string end_detail;                         ///< why it was refused or failed, for people
  int32_t num_new_tokens = 0;  ///< tokens that the finishing step drew for it, in no output yet
  int32_t num_new_scored = 0;  ///< in front of these: unscored grammar tokens that the step scored
  int32_t num_new_forced = 0;  ///< behind these: tokens forced by its grammar; with logprobs unscored instead
  FinishReason end = FinishReason::length;  ///< its finish once its tokens are scored, if it draws no more
  int32_t num_forced = 0;                   ///< forced tokens that outputs hold
  /// True if it may bring drafts. False with penalties or a grammar: their effect on a draft depends on the drafts before it.
  bool may_speculate = true;
  std::unique_ptr<Drafter> drafter;  ///< the material of its drafts; null: it has had none yet
  SpeculationCounts drafted;         ///< its drafts so far
};

/// The request of a sequence in a batch.
inline LiveRequest& live(const ScheduledSequence& scheduled) {
  return *scheduled.sequence->owner;
}

}  // namespace minfer
