#pragma once

/// A token's weight in a draw, the same bits on every backend: 2^(d * scale) with d = logit - the largest logit, at least lowest, by
/// a polynomial of the fifth degree. scale = kLog2E / temperature, lowest = kLowestPower / scale. Relative error below 2e-7.
namespace minfer {

inline constexpr float kLog2E = 0x1.715476p0f;
inline constexpr float kLeastTemperature = 1e-30f;
inline constexpr float kMostTemperature = 1e30f;
/// The lowest power of two: less likely tokens all weigh 2^-100.
inline constexpr float kLowestPower = -100.0f;
/// A token with this weight or less is never drawn, so neither is one of -inf.
inline constexpr float kLeastWeight = 0x1p-90f;

/// 2^r for |r| <= 1/2: coefficients of r^1 to r^5; the coefficient of r^0 is 1.
inline constexpr float kPowerOfTwo1 = 0x1.62e42ap-1f;
inline constexpr float kPowerOfTwo2 = 0x1.ebf9bcp-3f;
inline constexpr float kPowerOfTwo3 = 0x1.c6b752p-5f;
inline constexpr float kPowerOfTwo4 = 0x1.3cea88p-7f;
inline constexpr float kPowerOfTwo5 = 0x1.5bba14p-10f;

}  // namespace minfer
