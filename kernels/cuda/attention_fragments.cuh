#pragma once

#include "kernels/cuda/attention_tiles.cuh"

/// Fragments of transposed products over 16 keys of a KV head: S^T [keys, query heads] = K Q^T and
/// O^T [dims, query heads] += V^T P^T. Keys and dims take the side of 16 of an m16n8k16 product, the query
/// heads of a KV head, which are few, the side of 8. K and V lie as [key, dim] in shared memory.
///
/// fp8 is widened to f16 in registers. Its fragments come from 16-bit matrix loads, so that its dims stand in
/// another order: that of q and of the result is told by dim_of_query() and dim_of_result().
namespace minfer::cuda {

/// Lane l, as PTX numbers it in fragments: group l / 4, and l % 4 in it.
__device__ __forceinline__ int lane_group() {
  return static_cast<int>(threadIdx.x) % 32 / 4;
}
__device__ __forceinline__ int lane_in_group() {
  return static_cast<int>(threadIdx.x) % 4;
}

/// K and V of type Kv, bf16 or f16, with heads of kHead.
template <class Kv, int kHead>
struct KvFragments {
  using Element = Kv;  ///< of the products
  using Rows = SharedRows<kHead * sizeof(Kv)>;

  /// The first of the two dims that a lane's register `half` holds of columns [16 step, 16 step + 16) of q.
  static __device__ __forceinline__ int dim_of_query(int step, int half) {
    return 16 * step + 8 * half + 2 * lane_in_group();
  }
  /// The dim of a lane's results in rows `half` of fragment `step`.
  static __device__ __forceinline__ int dim_of_result(int step, int half) {
    return 16 * step + 8 * half + lane_group();
  }
  /// Keys 0 to 15, columns [32 i, 32 i + 32) in two fragments.
  static __device__ __forceinline__ void load_keys(uint32_t (&a)[2][4], uint32_t tile, int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      load_matrices(a[half], tile + Rows::offset(lane % 16, 4 * i + 2 * half + lane / 16));
  }
  /// Dims [32 i, 32 i + 32) of keys 0 to 15, transposed, in two fragments.
  static __device__ __forceinline__ void load_values(uint32_t (&a)[2][4], uint32_t tile, int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      load_transposed(a[half],
                      tile + Rows::offset(lane % 8 + lane / 16 * 8, 4 * i + 2 * half + lane / 8 % 2));
    }
  }
};

template <int kHead>
struct KvFragments<__nv_fp8_e4m3, kHead> {
  using Element = __half;
  using Rows = SharedRows<kHead>;

  static __device__ __forceinline__ int dim_of_query(int step, int half) {
    return 16 * step + 4 * lane_in_group() + 2 * half;
  }
  static __device__ __forceinline__ int dim_of_result(int step, int half) {
    return 16 * step + 2 * lane_group() + half;
  }
  static __device__ __forceinline__ uint32_t address(uint32_t tile, int i) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    return tile + Rows::offset(lane % 16, 2 * i + lane / 16);
  }
  static __device__ __forceinline__ void load_keys(uint32_t (&a)[2][4], uint32_t tile, int i) {
    uint32_t four[4];  // a lane's four dims of keys 0-7 and 8-15, of two fragments
    load_matrices(four, address(tile, i));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      a[half][0] = widen_low(four[2 * half]);
      a[half][1] = widen_low(four[2 * half + 1]);
      a[half][2] = widen_high(four[2 * half]);
      a[half][3] = widen_high(four[2 * half + 1]);
    }
  }
  static __device__ __forceinline__ void load_values(uint32_t (&a)[2][4], uint32_t tile, int i) {
    uint32_t four[4];  // two dims of two keys
    load_transposed(four, address(tile, i));
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int keys = 0; keys < 2; ++keys) {
        const uint32_t by_dim = __byte_perm(four[2 * half + keys], 0, 0x3120);
        a[half][2 * keys] = widen_low(by_dim);
        a[half][2 * keys + 1] = widen_high(by_dim);
      }
    }
  }
};

}  // namespace minfer::cuda
