#pragma once

#include "kernels/cuda/attention/shared/attention_tiles.cuh"

/// Fragments of K and V tiles that lie as [key, dim] in shared memory, for m16n8k16 products with keys or dims
/// on the side of 16: S^T [keys, queries] = K Q^T and O^T [dims, queries] = V^T P^T. A product with keys or dims
/// on the side of 8 takes registers (0, 2) of a fragment for the first 8 of them, and (1, 3) for the last 8.
///
/// fp8 is widened to f16 in registers. Its fragments come from 16-bit matrix loads, so its dims have another
/// order: dim_of_query() and dim_of_result() give the order of q and of the result. It takes 32 keys at a
/// time.
namespace minfer::cuda {

/// K and V of type Kv, bf16 or f16, with heads of kHead.
template <class Kv, int kHead>
struct KvFragments {
  using Element = Kv;  ///< of the products
  using Rows = SharedRows<kHead * sizeof(Kv)>;

  /// The first of the two dims in a lane's register `half`, for columns [16 step, 16 step + 16) of q.
  static __device__ __forceinline__ int dim_of_query(int step, int half) {
    return 16 * step + 8 * half + 2 * lane_in_group();
  }
  /// The dim of a lane's results in rows `half` of fragment `step`.
  static __device__ __forceinline__ int dim_of_result(int step, int half) {
    return 16 * step + 8 * half + lane_group();
  }
  /// Dims [16 step, 16 step + 16) of keys [16 g, 16 g + 16) in fragment g.
  template <int kGroups>
  static __device__ __forceinline__ void load_keys(uint32_t (&a)[kGroups][4], uint32_t tile, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      load_matrices(a[g], tile + Rows::offset(16 * g + lane % 16, 2 * step + lane / 16));
  }
  /// The same for V, transposed.
  template <int kGroups>
  static __device__ __forceinline__ void load_values(uint32_t (&a)[kGroups][4], uint32_t tile, int step) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      load_transposed(a[g], tile + Rows::offset(16 * g + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
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
  /// A register of a matrix load has four dims of a key. In PTX's order of matrices, the g-th has keys 8 g to
  /// 8 g + 7.
  template <int kGroups>
  static __device__ __forceinline__ void load_keys(uint32_t (&a)[kGroups][4], uint32_t tile, int step) {
    static_assert(kGroups == 2);
    uint32_t four[4];
    load_matrices(four, tile + Rows::offset(static_cast<int>(threadIdx.x) % 32, step));
#pragma unroll
    for (int g = 0; g < 2; ++g) {
      a[g][0] = widen_low(four[2 * g]);
      a[g][1] = widen_low(four[2 * g + 1]);
      a[g][2] = widen_high(four[2 * g]);
      a[g][3] = widen_high(four[2 * g + 1]);
    }
  }
  /// Transposed, a register has two dims of two keys.
  template <int kGroups>
  static __device__ __forceinline__ void load_values(uint32_t (&a)[kGroups][4], uint32_t tile, int step) {
    static_assert(kGroups == 2);
    uint32_t four[4];
    load_transposed(four, tile + Rows::offset(static_cast<int>(threadIdx.x) % 32, step));
#pragma unroll
    for (int g = 0; g < 2; ++g) {
#pragma unroll
      for (int keys = 0; keys < 2; ++keys) {
        const uint32_t by_dim = __byte_perm(four[2 * g + keys], 0, 0x3120);
        a[g][2 * keys] = widen_low(by_dim);
        a[g][2 * keys + 1] = widen_high(by_dim);
      }
    }
  }
};

}  // namespace minfer::cuda
