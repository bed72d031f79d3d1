#include "engine/speculation/ngram_index.h"

#include <algorithm>
#include <bit>

namespace minfer {
namespace {

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

}  // namespace minfer
