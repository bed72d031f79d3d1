#pragma once

#include "kernels/cuda/device/activation.cuh"
#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/product/panel_product.h"

/// From the registers of a warpgroup to rows of the output: sums of 64 rows of weights are put into shared memory by tokens, from where
/// four rows of a token at a time are read, finished and stored.
namespace minfer::cuda {

inline constexpr int kStoreStride =
    64 + 4;  ///< floats from a token to the next: no two lanes of a warp in one bank

__device__ __forceinline__ void barrier_of_warpgroup(int warpgroup) {
  warpgroup == 0 ? barrier_of(1, 128) : barrier_of(2, 128);
}
template <int kWarpgroups>
__device__ __forceinline__ void barrier_of_block() {
  barrier_of(3, 128 * kWarpgroups);
}

/// Calls function.operator()<kFirst>() for each kStoredTokens tokens of a tile.
template <class Tile, int kFirst = 0, class Function>
__device__ __forceinline__ void for_token_groups(const Function& function) {
  function.template operator()<kFirst>();
  if constexpr (kFirst + Tile::kStoredTokens < Tile::kTokens)
    for_token_groups<Tile, kFirst + Tile::kStoredTokens>(function);
}

/// Puts the sums of tokens [kFirst, kFirst + kCount) where they belong: [token - kFirst][row].
template <class Tile, int kFirst, int kCount, class Sums>
__device__ __forceinline__ void stage_sums(float (*to)[kStoreStride], const Sums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int i = kFirst / 8; i < (kFirst + kCount) / 8; ++i) {
    const int token = 8 * i - kFirst + 2 * (lane % 4);
    const float* four = &sums[i * 8 / Tile::kColumns][4 * (i % (Tile::kColumns / 8))];
    to[token][row] = four[0];
    to[token + 1][row] = four[1];
    to[token][row + 8] = four[2];
    to[token + 1][row + 8] = four[3];
  }
}

/// Rows of the output that a warpgroup's 64 rows of weights are for: as many, or half of them from gate and up.
template <bool kGateUp>
class StreamRows {
 public:
  /// `first`: in the output.
  __device__ __forceinline__ StreamRows(const PanelArgs& args, int32_t first) : args_(args), first_(first) {}

  /// Tokens first_token ... as they are staged, by the 128 threads of a warpgroup.
  __device__ __forceinline__ void store(const float (*from)[kStoreStride], int32_t first_token,
                                        int32_t count) const {
    each_vector(0, min(count, args_.tokens - first_token), [&](int32_t token, int32_t row) {
      const auto four_of = [&](int32_t at) { return *reinterpret_cast<const float4*>(&from[token][at]); };
      store_vector(first_token + token, row, four_of);
    });
  }
  /// The same where each block of a cluster has staged sums of its own: they are added in order; every block stores some tokens.
  __device__ __forceinline__ void store_part_of_cluster(const float (*from)[kStoreStride],
                                                        int32_t blocks) const {
    const auto block = static_cast<int32_t>(blockIdx.x) % blocks;
    each_vector(args_.tokens * block / blocks, args_.tokens * (block + 1) / blocks,
                [&](int32_t token, int32_t row) {
                  const auto four_of = [&](int32_t at) {
                    const uint32_t address = shared_address(&from[token][at]);
                    float4 sum = load_from_block(address, 0);
                    for (int32_t other = 1; other < blocks; ++other) {
                      const float4 more = load_from_block(address, other);
                      sum = make_float4(sum.x + more.x, sum.y + more.y, sum.z + more.z, sum.w + more.w);
                    }
                    return sum;
                  };
                  store_vector(token, row, four_of);
                });
  }

 private:
  static constexpr int kRows = kGateUp ? 32 : 64;

  template <class Function>
  __device__ __forceinline__ void each_vector(int32_t first_token, int32_t end_token,
                                              const Function& function) const {
    constexpr int kVectors = kRows / 4;
    for (int32_t i = static_cast<int32_t>(threadIdx.x) % 128; i < (end_token - first_token) * kVectors;
         i += 128)
      function(first_token + i / kVectors, i % kVectors * 4);
  }

  /// Rows first_ + row ...; four_of(r): the sums of rows r ... of the 64.
  template <class FourOf>
  __device__ __forceinline__ void store_vector(int32_t token, int32_t row, const FourOf& four_of) const {
    float4 value;
    if constexpr (kGateUp) {
      const int32_t staged = row / 8 * 16 + row % 8;
      const float4 gate = four_of(staged), up = four_of(staged + 8);
      const SwiGlu<false> swiglu;
      value =
          make_float4(swiglu(gate.x, up.x), swiglu(gate.y, up.y), swiglu(gate.z, up.z), swiglu(gate.w, up.w));
    } else {
      value = four_of(row);
    }
    const int32_t n = first_ + row;
    if (n >= args_.rows) return;
    if (args_.bias != nullptr) {
      const float4 bias = *reinterpret_cast<const float4*>(args_.bias + n);
      value = make_float4(value.x + bias.x, value.y + bias.y, value.z + bias.z, value.w + bias.w);
    }
    const int64_t at = token * args_.out_stride + n;
    if (args_.out_is_f32) {
      auto* out = reinterpret_cast<float4*>(static_cast<float*>(args_.out) + at);
      if (args_.add_to_out) {
        const float4 old = *out;
        value = make_float4(value.x + old.x, value.y + old.y, value.z + old.z, value.w + old.w);
      }
      *out = value;
    } else {
      const __nv_bfloat162 low = __floats2bfloat162_rn(value.x, value.y),
                           high = __floats2bfloat162_rn(value.z, value.w);
      uint2 bits;
      bits.x = *reinterpret_cast<const uint32_t*>(&low);
      bits.y = *reinterpret_cast<const uint32_t*>(&high);
      *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(args_.out) + at) = bits;
    }
  }

  const PanelArgs& args_;
  int32_t first_;
};

}  // namespace minfer::cuda
