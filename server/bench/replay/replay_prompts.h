#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "models/tokenizer/tokenizer.h"
#include "profiling/record/ended_request.h"

namespace minfer {

/// Prompts of random tokens, as long as the recorded ones. They begin alike where the recorded ones did: up to the longest hashed
/// prefix in common, and on to the last token that the recorded prompt had from the prefix cache. Each begins like the longest of
/// the earlier prompts that it agrees with most. A prefix in common with an earlier answer is not known, and not replayed.
class ReplayPrompts {
 public:
  /// Makes the prompts of `requests`, which are in order of arrival. `tokenizer` outlives this.
  ReplayPrompts(std::span<const EndedRequest> requests, const Tokenizer& tokenizer, uint64_t seed);

  /// The prompt of a request, the same at each call. No prompt is kept.
  std::vector<TokenId> draw(size_t request) const;

 private:
  static constexpr uint64_t kOdd = 0x9e3779b97f4a7c15u;  ///< mixes hashes and seeds
  struct Prompt {
    int32_t length = 0;
    int32_t num_shared = 0;  ///< tokens from its donor; the others are its own
    size_t donor = 0;        ///< earlier prompt, if any tokens are shared; the last of these are its own
  };
  void add(const EndedRequest& request);

  const Tokenizer& tokenizer_;
  uint64_t seed_;
  std::vector<Prompt> prompts_;
  std::unordered_map<uint64_t, size_t> longest_;  ///< of the prompts so far that begin with a prefix
};

}  // namespace minfer
