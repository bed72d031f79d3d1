#include "engine/speculation/ngram_drafter.h"

#include <algorithm>
#include <bit>

#include "engine/request/live_request.h"

namespace minfer {
namespace {

constexpr float kUnknownRate = 0.2f;  ///< most texts repeat little; where one does, a few tokens show it

constexpr size_t kFewestPlaces = 256;

/// The hash of an n-gram, from its last token back to its first: adds one more token
/// in front. The multiplier is 64-bit FNV's; the end mixes high bits into low ones.
uint64_t extend_hash(uint64_t hash, TokenId token) {
  return (hash ^ static_cast<uint32_t>(token)) * 0x00000100000001b3u + 0x9e3779b97f4a7c15u;
}

size_t place_of(uint64_t hash, size_t num_places) {
  hash ^= hash >> 29;
  hash *= 0xbf58476d1ce4e5b9u;
  return static_cast<size_t>(hash >> 32) & (num_places - 1);
}

}  // namespace

NgramIndex::NgramIndex(int32_t min_length, int32_t max_length, int32_t num_tokens)
    : min_length_(min_length), max_length_(max_length) {
  const auto num_lengths = static_cast<size_t>(max_length - min_length + 1);
  const size_t wanted = 2 * num_lengths * static_cast<size_t>(std::max(num_tokens, 0));
  places_.resize(std::clamp(std::bit_ceil(wanted), kFewestPlaces, kMostPlaces));
}

NgramIndex::Match NgramIndex::add(std::span<const TokenId> tokens) {
  Match match;
  enter(tokens, &match);
  if (2 * num_entered_ > places_.size() && places_.size() < kMostPlaces) grow(tokens);
  return match;
}

/// Enters the n-grams at the end of `tokens`, after looking where they were.
void NgramIndex::enter(std::span<const TokenId> tokens, Match* match) {
  const auto size = static_cast<int32_t>(tokens.size());
  uint64_t hash = 0;
  for (int32_t length = 1; length <= std::min(max_length_, size); ++length) {
    hash = extend_hash(hash, tokens[static_cast<size_t>(size - length)]);
    if (length < min_length_) continue;
    int32_t& place = places_[place_of(hash, places_.size())];
    // Not its own place, under which a shorter one of these may be entered, nor a shorter one's place with the same hash at the begin.
    if (match != nullptr && place >= length && place < size) {
      const auto there = tokens.subspan(static_cast<size_t>(place - length), static_cast<size_t>(length));
      if (std::ranges::equal(there, tokens.last(static_cast<size_t>(length)))) *match = {place, length};
    }
    if (place == 0) ++num_entered_;
    place = size;
  }
}

/// Quadruples the table, so that a token costs the same on average.
void NgramIndex::grow(std::span<const TokenId> tokens) {
  places_.assign(std::min(places_.size() * 4, kMostPlaces), 0);
  num_entered_ = 0;
  for (size_t end = 1; end <= tokens.size(); ++end)
    enter(tokens.first(end), nullptr);
}

NgramHitRates NgramHitRates::first_guess() {
  NgramHitRates rates;
  for (size_t i = 0; i < kLongest; ++i)
    rates.rates_[i] = HitRate(0.5f * static_cast<float>(i + 1), 1.0f);
  return rates;
}

size_t NgramHitRates::index(int32_t match_length) {
  return std::min(static_cast<size_t>(std::max(match_length, 1)) - 1, kLongest - 1);
}

NgramDrafter::NgramDrafter(const SpeculationOptions& options, int32_t num_prompt_tokens, NgramHitRates& all)
    : num_prompt_tokens_(num_prompt_tokens),
      index_(options.ngram_min, options.ngram_max, num_prompt_tokens),
      all_(all) {}

void NgramDrafter::follow(std::span<const TokenId> tokens) {
  while (num_followed_ < tokens.size())
    follow_last(tokens.first(++num_followed_));
}

void NgramDrafter::follow_last(std::span<const TokenId> tokens) {
  const NgramIndex::Match found = index_.add(tokens);
  bool was_right = false;
  if (match_.next >= 0) {
    was_right = tokens[static_cast<size_t>(match_.next)] == tokens.back();
    if (std::ssize(tokens) > num_prompt_tokens_) {
      own_.of(match_.length).add(was_right);
      all_.of(match_.length).add(was_right);
    }
  }
  if (was_right && match_.length >= found.length) {
    ++match_.next;
    ++match_.length;
  } else {
    match_ = found;
  }
}

float NgramDrafter::hit_rate(int32_t index) const {
  if (match_.next < 0) return 0.0f;
  const int32_t length = match_.length + index;
  return own_.of(length).value(all_.of(length).value(kUnknownRate));
}

void NgramDrafter::propose(std::span<const TokenId> tokens, int32_t num_drafts,
                           std::vector<TokenId>& drafts) const {
  drafts.clear();
  if (match_.next < 0) return;
  for (int32_t i = 0; i < num_drafts; ++i) {
    const size_t place = static_cast<size_t>(match_.next) + static_cast<size_t>(i);
    drafts.push_back(place < tokens.size() ? tokens[place] : drafts[place - tokens.size()]);
  }
}

namespace {

class NgramSource : public DraftSource {
 public:
  explicit NgramSource(const SpeculationOptions& options) : options_(options) {}

  std::unique_ptr<Drafter> make_drafter(const Sequence& sequence) override {
    return std::make_unique<NgramDrafter>(options_, sequence.num_prompt_tokens, all_);
  }

  void propose(std::span<const DraftOrder> orders) override {
    for (const DraftOrder& order : orders) {
      LiveRequest& request = *order.request;
      static_cast<NgramDrafter&>(*request.drafter).propose(request.tokens, order.num_drafts, request.drafts);
    }
  }

 private:
  const SpeculationOptions options_;
  NgramHitRates all_ = NgramHitRates::first_guess();
};

}  // namespace

std::unique_ptr<DraftSource> make_ngram_source(const SpeculationOptions& options) {
  return std::make_unique<NgramSource>(options);
}

}  // namespace minfer
