#pragma once

#include <cstdint>

/// Operations over the 32 lanes of a warp. All lanes call these functions. Each function adds or compares in an
/// order that depends on the lane numbers alone, so results repeat bit for bit.
///
/// Lane l is lane l % 4 of group l / 4, as PTX numbers the lanes that share a row of a fragment.
namespace minfer::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr uint32_t kWholeWarp = ~0u;

__device__ __forceinline__ int lane_group() {
  return static_cast<int>(threadIdx.x) % 32 / 4;
}
__device__ __forceinline__ int lane_in_group() {
  return static_cast<int>(threadIdx.x) % 4;
}

/// For a value that is the same in all lanes: tells the compiler so, which then computes its uses once for the
/// warp, as descriptors of operands require.
__device__ __forceinline__ uint32_t same_in_warp(uint32_t value) {
  return __shfl_sync(kWholeWarp, value, 0);
}

/// The sum over the warp, in every lane: 16 lanes apart first, 1 last.
template <class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  return value;
}

/// Sums kCount values over lanes. A lane gets the sum of one value over the lanes that differ in the bits from kDistance
/// down to 2 kDistance / kCount; these bits of the lane are the value's index. The recursion ends at kCount = 1.
template <int kCount, int kDistance>
__device__ __forceinline__ float scattered_sum(const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    const bool takes_upper = (static_cast<int>(threadIdx.x) & kDistance) != 0;
    float sums[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float given = takes_upper ? values[i] : values[i + kCount / 2];
      const float kept = takes_upper ? values[i + kCount / 2] : values[i];
      sums[i] = kept + __shfl_xor_sync(kWholeWarp, given, kDistance);
    }
    return scattered_sum<kCount / 2, kDistance / 2>(sums);
  }
}

/// The largest of the warp's integers, in every lane.
template <class T>
__device__ __forceinline__ T warp_max(T value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2)
    value = max(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

/// The same for unsigned integers, in one instruction.
__device__ __forceinline__ uint32_t warp_most(uint32_t value) {
  return __reduce_max_sync(kWholeWarp, value);
}

/// The sum up to and including this lane.
template <class T>
__device__ __forceinline__ T warp_sum_up_to(T value) {
  const auto lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const T below = __shfl_up_sync(kWholeWarp, value, distance);
    if (lane >= distance) value += below;
  }
  return value;
}

/// The sum over the four lanes of a group, in each of them.
__device__ __forceinline__ float group_sum(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 1);
  value += __shfl_xor_sync(kWholeWarp, value, 2);
  return value;
}
__device__ __forceinline__ float group_max(float value) {
  value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 1));
  value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, 2));
  return value;
}

/// The sum over the eight lanes with the same place in their groups, in each of them.
__device__ __forceinline__ float sum_of_groups(float value) {
#pragma unroll
  for (int distance = 4; distance < kWarpSize; distance *= 2)
    value += __shfl_xor_sync(kWholeWarp, value, distance);
  return value;
}
__device__ __forceinline__ float max_of_groups(float value) {
#pragma unroll
  for (int distance = 4; distance < kWarpSize; distance *= 2)
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

}  // namespace minfer::cuda
