#pragma once

#include <array>
#include <vector>

#include "engine/options/speculation_options.h"
#include "engine/request/drafter.h"
#include "engine/speculation/draft_source.h"

namespace minfer {

/// Where the last tokens of a sequence stood before in it. It knows the newest place of each n-gram, in a hash table of places
/// alone. A hit compares the tokens; a collision forgets the older place. So a token costs the same wherever it stands and whatever
/// the tokens are. The table stops growing at kMostPlaces: in longer sequences it forgets roughly the oldest places first.
class NgramIndex {
 public:
  static constexpr size_t kMostPlaces = size_t{1} << 17;

  /// Indexes n-grams of `min_length` to `max_length` tokens, at most kLongestNgram. `num_tokens`: the number that will come at once.
  NgramIndex(int32_t min_length, int32_t max_length, int32_t num_tokens);

  struct Match {
    int32_t next = -1;   ///< the token that followed there; -1: the last token is new
    int32_t length = 0;  ///< of the n-gram
  };

  /// Takes the last of `tokens`, which are the tokens of the call before and this one.
  /// Returns what followed the longest n-gram at the end of `tokens` when it last came.
  Match add(std::span<const TokenId> tokens);

 private:
  void enter(std::span<const TokenId> tokens, Match* match);
  void grow(std::span<const TokenId> tokens);

  int32_t min_length_;
  int32_t max_length_;
  size_t num_entered_ = 0;
  std::vector<int32_t> places_;  ///< by hash: index behind an n-gram, 0: none; a power of two
};

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
