#pragma once

#include "kernels/activation.h"
#include "kernels/cpu/lanes/lanes.h"
#include "kernels/token_weight.h"

namespace minfer::cpu {
inline namespace MINFER_ISA {

/// e^x with a relative error below 1.2e-7, the same bits on every instruction set. Overflows to infinity,
/// underflows through the denormals to 0, keeps NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite's two-part ln 2); e^r by its Taylor polynomial to r^7,
/// whose remainder is below 1e-8. Adding 1.5 * 2^23 rounds n and leaves it in the low bits of the sum; 2^n is
/// applied as two factors, so that neither end of the range needs a branch.
inline Lanes exp(Lanes x) {
  x = max(Lanes::set(-104.0f), min(Lanes::set(89.0f), x));
  const Lanes magic = Lanes::set(0x1.8p23f);
  const Lanes shifted = fma(x, Lanes::set(0x1.715476p0f), magic);
  const Lanes n = shifted - magic;
  Lanes r = fma(n, Lanes::set(-0x1.62e4p-1f), x);
  r = fma(n, Lanes::set(-0x1.7f7d1cp-20f), r);
  Lanes p = Lanes::set(1.0f / 5040.0f);
  p = fma(p, r, Lanes::set(1.0f / 720.0f));
  p = fma(p, r, Lanes::set(1.0f / 120.0f));
  p = fma(p, r, Lanes::set(1.0f / 24.0f));
  p = fma(p, r, Lanes::set(1.0f / 6.0f));
  p = fma(p, r, Lanes::set(0.5f));
  p = fma(p, r, Lanes::set(1.0f));
  p = fma(p, r, Lanes::set(1.0f));
  Lanes first;
  Lanes second;
  split_exponent(shifted, &first, &second);
  return p * first * second;
}

/// 2^(x * scale) for x * scale in [-101, 0], as in kernels/token_weight.h; the same bits on every instruction set.
inline Lanes power_of_two(Lanes x, Lanes scale) {
  const Lanes magic = Lanes::set(0x1.8p23f);
  const Lanes shifted = fma(x, scale, magic);
  const Lanes r = fma(x, scale, magic - shifted);
  Lanes p = Lanes::set(kPowerOfTwo5);
  p = fma(p, r, Lanes::set(kPowerOfTwo4));
  p = fma(p, r, Lanes::set(kPowerOfTwo3));
  p = fma(p, r, Lanes::set(kPowerOfTwo2));
  p = fma(p, r, Lanes::set(kPowerOfTwo1));
  p = fma(p, r, Lanes::set(1.0f));
  Lanes first;
  Lanes second;
  split_exponent(shifted, &first, &second);
  return p * first * second;
}

/// cap tanh(x / cap), within 2e-7 cap of it, the same bits on every instruction set: tanh(y) = 1 - 2 / (1 + e^2y).
inline Lanes soft_cap(Lanes x, float cap) {
  const Lanes grown = exp(x * Lanes::set(2.0f / cap));
  return Lanes::set(cap) - Lanes::set(2.0f * cap) / (Lanes::set(1.0f) + grown);
}

/// x / (1 + e^-slope)
inline Lanes times_sigmoid(Lanes x, Lanes slope) {
  return x / (Lanes::set(1.0f) + exp(Lanes::set(0.0f) - slope));
}

/// x / (1 + e^-x)   (Elfwing et al. 2018)
inline Lanes silu(Lanes x) {
  return times_sigmoid(x, x);
}

/// x (1 + erf(x / sqrt(2))) / 2, within 2e-7 |x| of it, the same bits on every instruction set. erfc of |x| / sqrt(2) by Abramowitz and
/// Stegun 7.1.26: a polynomial of t = 1 / (1 + p z) times e^-z^2.
inline Lanes gelu(Lanes x) {
  const Lanes zero = Lanes::set(0.0f);
  const Lanes magnitude = min(Lanes::set(20.0f), max(zero - x, x));  // its erfc is 0
  const Lanes z = magnitude * Lanes::set(0.70710678f);
  const Lanes t = Lanes::set(1.0f) / fma(z, Lanes::set(0.3275911f), Lanes::set(1.0f));
  Lanes p = Lanes::set(1.061405429f);
  p = fma(p, t, Lanes::set(-1.453152027f));
  p = fma(p, t, Lanes::set(1.421413741f));
  p = fma(p, t, Lanes::set(-0.284496736f));
  p = fma(p, t, Lanes::set(0.254829592f));
  const Lanes erfc = p * t * exp(zero - z * z);
  return fma(magnitude * erfc, Lanes::set(-0.5f), max(zero, x));
}

template <GateActivation activation>
inline Lanes gated(Lanes gate, Lanes up) {
  if constexpr (activation == GateActivation::silu) {
    return silu(gate) * up;
  } else if constexpr (activation == GateActivation::gelu_tanh) {
    const Lanes slope = gate * fma(gate * gate, Lanes::set(kGeluTanhCubic), Lanes::set(kGeluTanhLinear));
    return times_sigmoid(gate, slope) * up;
  } else if constexpr (activation == GateActivation::gelu) {
    return gelu(gate) * up;
  } else if constexpr (activation == GateActivation::relu) {
    return max(Lanes::set(0.0f), gate) * up;
  } else {
    const Lanes limit = Lanes::set(kSwiGluLimit);
    const Lanes low = min(limit, gate);  // NaN stays, as it is the second operand
    const Lanes within = max(Lanes::set(-kSwiGluLimit), min(limit, up));
    return times_sigmoid(low, low * Lanes::set(kSwiGluSlope)) * (within + Lanes::set(1.0f));
  }
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
