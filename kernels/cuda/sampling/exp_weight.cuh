#pragma once

#include <cstdint>

/// Probabilities as integers: e^x in units of 2^-43, from the bits that the CPU backend gets for e^x
/// (kernels/cpu/lanes/vector_math.h), so that both backends draw the same tokens.
namespace minfer::cuda {

inline constexpr int kWeightBits = 43;

/// e^x * 2^43, rounded down; -128 <= x <= 0. Every step is one correctly rounded operation, as on the CPU.
__device__ __forceinline__ uint64_t exp_weight(float x) {
  constexpr float kMagic = 0x1.8p23f;  // leaves the rounded integer in the low bits of a sum
  const float shifted = fmaf(x, 0x1.715476p0f, kMagic);
  const float n = __fsub_rn(shifted, kMagic);
  float r = fmaf(n, -0x1.62e4p-1f, x);
  r = fmaf(n, -0x1.7f7d1cp-20f, r);
  float p = 1.0f / 5040.0f;
  p = fmaf(p, r, 1.0f / 720.0f);
  p = fmaf(p, r, 1.0f / 120.0f);
  p = fmaf(p, r, 1.0f / 24.0f);
  p = fmaf(p, r, 1.0f / 6.0f);
  p = fmaf(p, r, 0.5f);
  p = fmaf(p, r, 1.0f);
  p = fmaf(p, r, 1.0f);
  // e^x = p * 2^n with p close to 1: shift p's mantissa.
  constexpr int kMantissaBits = 23;
  const uint32_t bits = __float_as_uint(p);
  const uint64_t mantissa = (bits & ((1u << kMantissaBits) - 1)) | 1u << kMantissaBits;
  const int exponent =
      __float_as_int(shifted) - __float_as_int(kMagic) + static_cast<int>(bits >> kMantissaBits) - 127;
  constexpr int kUp = 38;  // as far as it goes: the shift down that follows is never negative
  return mantissa << kUp >> min(kUp + kMantissaBits - kWeightBits - exponent, 63);
}

/// The weights of logits at a temperature, relative to the largest logit: max has 2^43.
class LogitWeight {
 public:
  /// Temperatures below 1e-30 act like 1e-30.
  __device__ LogitWeight(float max, float temperature)
      : max_(max), temperature_(fmaxf(temperature, 1e-30f)), inverse_(1.0f / temperature_) {}

  /// logit <= max, not NaN.
  __device__ __forceinline__ uint64_t operator()(float logit) const {
    const float difference = fmaxf(__fsub_rn(logit, max_), -128.0f * temperature_);
    // The quotient rounded as a division would: one Newton step from the rounded reciprocal (Markstein 1990).
    const float quotient = __fmul_rn(difference, inverse_);
    return exp_weight(fmaf(fmaf(-quotient, temperature_, difference), inverse_, quotient));
  }

 private:
  float max_;
  float temperature_;
  float inverse_;
};

}  // namespace minfer::cuda
