#pragma once

#include <cstdint>

#include "kernels/token_weight.h"

/// Probabilities relative to the likeliest token, with the same bits as the CPU backend
/// (kernels/cpu/lanes/vector_math.h), and their sums, which are exact: each probability is rounded down to
/// units of 2^-43. So both backends draw the same tokens, in whatever order a GPU adds.
namespace minfer::cuda {

inline constexpr int kWeightBits = 43;

/// A sum of weights in units of 2^-43.
using RowWeight = uint64_t;

/// A weight of [0, 1] in units, rounded down.
__device__ __forceinline__ RowWeight weight_units(float weight) {
  return __float2ull_rd(weight * 0x1p43f);
}

/// 2^(x * scale) for -101 <= x * scale <= 0, which is e^(x / temperature) for scale = log2 e / temperature; 1 for 0. Every step is one
/// correctly rounded operation, as on the CPU.
__device__ __forceinline__ float power_of_two(float x, float scale) {
  constexpr float kMagic = 0x1.8p23f;  // leaves the rounded integer in the low bits of a sum
  const float shifted = fmaf(x, scale, kMagic);
  const float r = fmaf(x, scale, -__fsub_rn(shifted, kMagic));
  float p = kPowerOfTwo5;
  p = fmaf(p, r, kPowerOfTwo4);
  p = fmaf(p, r, kPowerOfTwo3);
  p = fmaf(p, r, kPowerOfTwo2);
  p = fmaf(p, r, kPowerOfTwo1);
  p = fmaf(p, r, 1.0f);
  // n, the low bits of `shifted`, is added to p's exponent; the bits of kMagic are shifted out.
  return __uint_as_float(__float_as_uint(p) + (__float_as_uint(shifted) << 23));
}

/// Adds at most kMost weights without 64-bit arithmetic: two additions that round split a weight at 2^-20, and
/// both halves are added as integers.
class WeightSum {
 public:
  static constexpr int kMost = 256;

  __device__ __forceinline__ void add(float weight) {
    constexpr float kUpper = 12.0f;       // the last bit of sums with it is 2^-20
    constexpr float kLower = 0x1.8p-20f;  // 2^-43
    constexpr uint32_t kUpperBits = 0x41400000u;
    constexpr uint32_t kLowerBits = 0x35c00000u;
    const float upper = __fadd_rn(weight, kUpper);
    upper_ += __float_as_uint(upper) - kUpperBits;
    const float rest = __fsub_rn(weight, __fsub_rn(upper, kUpper));  // exact, at most 2^-21 either way
    lower_ += __float_as_uint(__fadd_rd(rest, kLower)) - kLowerBits;
  }
  __device__ RowWeight units() const {
    constexpr int kLowerUnits = kWeightBits - 20;
    return (RowWeight{upper_} << kLowerUnits) + static_cast<RowWeight>(int64_t{static_cast<int32_t>(lower_)});
  }

 private:
  uint32_t upper_ = 0;
  uint32_t lower_ = 0;  ///< signed, modulo 2^32
};

/// The weights of logits at a temperature: e^((logit - max) / temperature).
class LogitWeight {
 public:
  /// Temperatures outside kLeastTemperature and kMostTemperature act like the nearer of these.
  __device__ LogitWeight(float max, float temperature)
      : max_(max),
        temperature_(fminf(fmaxf(temperature, kLeastTemperature), kMostTemperature)),
        scale_(kLog2E / temperature_),
        lowest_(kLowestPower / scale_) {}

  /// logit <= max; -inf gives the smallest weight, far below a unit.
  __device__ __forceinline__ float operator()(float logit) const { return below(__fsub_rn(logit, max_)); }
  /// The weight of a logit with this difference from the largest.
  __device__ __forceinline__ float below(float difference) const {
    return power_of_two(fmaxf(difference, lowest_), scale_);
  }
  /// Logits below it weigh less than a unit.
  __device__ float floor() const { return max_ - 30.0f * temperature_; }
  /// Logits further than this below the largest have almost no weight.
  __device__ float reach() const { return 16.0f * temperature_; }
  /// The relative difference between weights whose logits differ by `difference`, which is small; includes the rounding of sums.
  __device__ float change(float difference) const { return 1.01f * difference / temperature_ + 0x1p-20f; }

 private:
  float max_;
  float temperature_;
  float scale_;
  float lowest_;
};

/// Every token weighs 1, except those of -inf.
struct TokenWeight {
  __device__ __forceinline__ float operator()(float logit) const { return below(logit); }
  __device__ __forceinline__ float below(float difference) const {
    return difference > -INFINITY ? 1.0f : 0.0f;
  }
  __device__ float floor() const { return -INFINITY; }
  __device__ float reach() const { return 64.0f; }
  __device__ float change(float /*difference*/) const { return 0.0f; }
};

}  // namespace minfer::cuda
