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

/// Scratch memory of find_cutoff() for a vocabulary of `size` tokens.
struct CutoffScratch {
  struct Bucket {
    double weight;
    int64_t count;
  };
  static constexpr int kBuckets = 1536;
  Bucket* buckets = nullptr;  ///< [kBuckets]
  int32_t* tokens = nullptr;  ///< [size]
};

/// The shortest prefix, of at least one token, whose weights add up to `target` or more; all of the
/// vocabulary if they never do. `weights` empty: each token weighs 1. Tokens of -inf are left out, and so are
/// tokens that `within`, unless null, does not keep. `max` is the largest logit and finite; no logit is NaN.
///
/// The vocabulary is not sorted: tokens are counted in buckets of (max - logit), and only the bucket in
/// which the prefix ends is sorted.
TokenCutoff find_cutoff(std::span<const float> logits, std::span<const float> weights,
                        const TokenCutoff* within, float max, double target, const CutoffScratch& scratch);

}  // namespace minfer::cpu
