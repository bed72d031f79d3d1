#pragma once

#include "kernels/cpu/lanes/lanes.h"

namespace minfer::cpu {
inline namespace MINFER_ISA {

/// e^x with a relative error below 1.2e-7, the same bits on every instruction set. Overflows to infinity,
/// underflows through the denormals to 0, keeps NaN.
///
/// x = n ln 2 + r with |r| <= ln 2 / 2 (Cody and Waite's two-part ln 2), e^r by its Taylor polynomial to r^7,
/// whose rest is under 1e-8. n is rounded by adding 1.5 * 2^23, which leaves it in the low bits of the sum;
/// 2^n is applied as two factors so that neither end of the range needs a branch.
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

/// x / (1 + e^-x)   (Elfwing et al. 2018)
inline Lanes silu(Lanes x) {
  return x / (Lanes::set(1.0f) + exp(Lanes::set(0.0f) - x));
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
