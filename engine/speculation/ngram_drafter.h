#pragma once

#include <array>
#include <vector>

#include "engine/options/speculation_options.h"
#include "engine/request/drafter.h"
#include "engine/speculation/draft_source.h"
#include "engine/speculation/hit_rate.h"
#include "engine/speculation/ngram_index.h"

namespace minfer {

/// How often the tokens that followed a match come again, by the match's length: a long match is a better sign than a short one.
class NgramHitRates {
 public:
  /// The rates before anything is known: one matching token says little, a dozen say much.
  static NgramHitRates first_guess();
  HitRate& of(int32_t match_length) { return rates_[index(match_length)]; }
  const HitRate& of(int32_t match_length) const { return rates_[index(match_length)]; }

 private:
  static constexpr size_t kLongest = 16;  ///< matches of this length and longer ones count as one kind
  static size_t index(int32_t match_length);

  std::array<HitRate, kLongest> rates_{};
};

/// Drafts from the sequence's own text (prompt lookup decoding, Saxena 2023): the tokens that followed its
/// last tokens when they came before. Looking up is cheap, so it is done for every token. The next token shows
/// if the lookup was right, without checking drafts. So the hit rates are known even while nothing is drafted.
class NgramDrafter : public Drafter {
 public:
  /// `all`: hit rates of all sequences. This one begins with them and adds
  /// to them; they outlive it. Within the prompt, hits are not counted.
  NgramDrafter(const SpeculationOptions& options, int32_t num_prompt_tokens, NgramHitRates& all);

  void follow(std::span<const TokenId> tokens) override;
  float hit_rate(int32_t index) const override;
  void checked(int32_t /*num_drafts*/, int32_t /*num_accepted*/) override {}
  /// Sets `drafts` to at most `num_drafts` tokens that may follow `tokens`, which are the tokens of the last follow().
  void propose(std::span<const TokenId> tokens, int32_t num_drafts, std::vector<TokenId>& drafts) const;

 private:
  void follow_last(std::span<const TokenId> tokens);

  const int32_t num_prompt_tokens_;
  NgramIndex index_;
  size_t num_followed_ = 0;
  NgramIndex::Match match_;  ///< the earlier place of the last tokens that was right longest
  NgramHitRates own_;
  NgramHitRates& all_;
};

/// Drafts by prompt lookup.
std::unique_ptr<DraftSource> make_ngram_source(const SpeculationOptions& options);

}  // namespace minfer
