#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace minfer::cpu {

/// The logit of a token that may not be drawn.
inline constexpr float kForbidden = -std::numeric_limits<float>::infinity();

/// The last token of a prefix of the vocabulary ordered by logit, largest first, lower token first among
/// equals.
struct TokenCutoff {
  float logit = 0.0f;
  int32_t token = 0;

  bool keeps(float x, int32_t i) const { return x > logit || (x == logit && i <= token); }
};

/// Scratch memory of find_cutoff() for a vocabulary of `size`.
struct CutoffScratch {
  struct Bucket {
    double weight;
    int64_t count;
  };
  static constexpr int kBuckets = 1536;
  Bucket* buckets = nullptr;  ///< [kBuckets]
  int32_t* tokens = nullptr;  ///< [size]
};

/// The shortest prefix whose weights add up to `target` or more, at least one token; all it can have if they
/// do not. `weights` empty: each token weighs 1. Tokens of -inf, and those that `within` does not keep unless
/// it is null, are left out. `max` is the largest logit and finite; logits are not NaN.
///
/// Instead of sorting the vocabulary, tokens are counted in buckets of (max - logit); only the bucket in
/// which the prefix ends is sorted.
TokenCutoff find_cutoff(std::span<const float> logits, std::span<const float> weights,
                        const TokenCutoff* within, float max, double target, const CutoffScratch& scratch);

}  // namespace minfer::cpu
