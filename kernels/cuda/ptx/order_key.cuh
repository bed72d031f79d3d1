#pragma once

#include <cstdint>

/// Floats as unsigned integers with the same order.
namespace minfer::cuda {

inline constexpr uint32_t kKeyOfMinusInfinity = 0x007fffffu;

/// The key of any value except NaN; -0 counts as +0.
__device__ __forceinline__ uint32_t order_key(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);  // -0 + 0 is +0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float value_of_key(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

}  // namespace minfer::cuda
