#include "kernels/cpu/token_cutoff.h"

#include <algorithm>
#include <bit>

namespace minfer::cpu {
namespace {

constexpr int kMantissaBits = 6;
constexpr int kLowestExponent = -12;

/// Ascends with max - logit: 64 buckets an octave from 2^-12 to 2^12; values outside go to the first or the
/// last bucket. The bit patterns of floats from +0 on ascend as the floats do.
int bucket_of(float max, float logit) {
  constexpr int kFirst = (127 + kLowestExponent) << kMantissaBits;
  const float difference = max - logit + 0.0f;  // +0 if they differ in the sign of a zero
  const auto pattern = static_cast<int>(std::bit_cast<uint32_t>(difference) >> (23 - kMantissaBits));
  return std::clamp(pattern - kFirst, 0, CutoffScratch::kBuckets - 1);
}

struct Crossing {
  int bucket;
  double weight_before;  ///< of all buckets before it
};

Crossing find_bucket(const CutoffScratch& scratch, double target) {
  Crossing crossing{0, 0.0};
  double sum = 0.0;
  for (int b = 0; b < CutoffScratch::kBuckets; ++b) {
    if (scratch.buckets[b].count == 0) continue;
    crossing = {b, sum};
    sum += scratch.buckets[b].weight;
    if (sum >= target) break;
  }
  return crossing;
}

}  // namespace

TokenCutoff find_cutoff(std::span<const float> logits, std::span<const float> weights,
                        const TokenCutoff* within, float max, double target, const CutoffScratch& scratch) {
  const auto size = static_cast<int32_t>(logits.size());
  const auto weight = [&](int32_t i) { return weights.empty() ? 1.0 : static_cast<double>(weights[i]); };
  const auto kept = [&](int32_t i) {
    return logits[i] > kForbidden && (within == nullptr || within->keeps(logits[i], i));
  };

  std::fill_n(scratch.buckets, CutoffScratch::kBuckets, CutoffScratch::Bucket{0.0, 0});
  for (int32_t i = 0; i < size; ++i) {
    if (!kept(i)) continue;
    CutoffScratch::Bucket& bucket = scratch.buckets[bucket_of(max, logits[i])];
    bucket.weight += weight(i);
    ++bucket.count;
  }
  const Crossing crossing = find_bucket(scratch, target);

  int32_t* last = scratch.tokens;
  for (int32_t i = 0; i < size; ++i) {
    if (kept(i) && bucket_of(max, logits[i]) == crossing.bucket) *last++ = i;
  }
  std::sort(scratch.tokens, last,
            [&](int32_t a, int32_t b) { return logits[a] > logits[b] || (logits[a] == logits[b] && a < b); });
  double sum = crossing.weight_before;
  const int32_t* end = scratch.tokens;
  do {
    sum += weight(*end++);
  } while (end != last && sum < target);
  return {logits[end[-1]], end[-1]};
}

}  // namespace minfer::cpu
