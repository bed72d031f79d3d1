#pragma once

#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/bf16_pair.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/element.cuh"

/// Moves sums from the registers of a warpgroup to rows of the output. Sums of 64 rows of weights are staged in
/// shared memory by tokens; then four rows of a token at a time are read, finished and stored.
namespace minfer::cuda {

inline constexpr int kStoreStride =
    64 + 4;  ///< floats from a token to the next: no two lanes of a warp use one bank

/// Adds at the memory, so the kernel neither loads nor waits. A kernel adds to each number only once, so the sum repeats.
__device__ __forceinline__ void add_four(float* to, const float4& value) {
  asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(value.x), "f"(value.y),
               "f"(value.z), "f"(value.w)
               : "memory");
}

/// The barrier of the warpgroup that has group `row_group` of 64 rows. At most two warpgroups take these groups, in turn.
__device__ __forceinline__ void barrier_of_warpgroup(int row_group) {
  row_group % 2 == 0 ? barrier_of(1, 128) : barrier_of(2, 128);
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

/// Stages the sums of tokens [kFirst, kFirst + kCount): [token - kFirst][row].
template <class Tile, int kFirst, int kCount, class Sums>
__device__ __forceinline__ void stage_sums(float (*to)[kStoreStride], const Sums& sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int row = static_cast<int>(threadIdx.x) / 32 % 4 * 16 + lane / 4;
#pragma unroll
  for (int i = kFirst / 8; i < (kFirst + kCount) / 8; ++i) {
    const int token = 8 * i - kFirst + 2 * (lane % 4);
    const float* four = &sums[4 * i];
    to[token][row] = four[0];
    to[token + 1][row] = four[1];
    to[token][row + 8] = four[2];
    to[token + 1][row + 8] = four[3];
  }
}

/// Rows of the output for a warpgroup's 64 rows of weights: 64, or 32 for gate and up. The warpgroup's 128
/// threads finish kCount tokens at a time, in vectors of four rows, and issue all loads before they wait for
/// the first. Rows of gate and of up alternate by kTogether.
template <bool kGateUp, int kCount, int kTogether>
class StreamRows {
  static constexpr int kRows = kGateUp ? 32 : 64;
  static constexpr int kVectors = kRows / 4;
  static constexpr int kTurns = (kCount * kVectors + 127) / 128;

 public:
  /// `first`: first row of the output; biases begin `first_bias` elements further on.
  __device__ __forceinline__ StreamRows(const ProductArgs& args, int32_t first, int64_t first_bias = 0)
      : args_(args), first_(first), first_bias_(first_bias) {}

  /// Stores `count` staged tokens, token t to the output's token out_of(t); whole warps call that together.
  template <class OutOf>
  __device__ __forceinline__ void store(const float (*from)[kStoreStride], int32_t count,
                                        const OutOf& out_of) const {
    store_all(count, out_of, [&](float4(&sums)[kTurns], int row) {
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const Place place(turn);
        if (place.token < kCount)
          sums[turn] = *reinterpret_cast<const float4*>(&from[place.token][staged(place, row)]);
      }
    });
  }
  /// The same if each block of a cluster has staged its own sums, from its first_token on: they are added in order.
  __device__ __forceinline__ void store_of_cluster(const float (*from)[kStoreStride], int32_t blocks,
                                                   int32_t first_token, int32_t count) const {
    const auto out_of = [=](int32_t token) { return first_token + token; };
    store_all(count, out_of, [&](float4(&sums)[kTurns], int row) {
      for (int32_t block = 0; block < blocks; ++block) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
          const Place place(turn);
          if (place.token >= count) continue;
          const float4 more =
              load_from_block(shared_address(&from[first_token + place.token][staged(place, row)]), block);
          sums[turn] = block == 0 ? more : sum_of(sums[turn], more);
        }
      }
    });
  }

 private:
  /// A thread's place in a turn: four rows of a token.
  struct Place {
    int32_t token, row;
    __device__ __forceinline__ explicit Place(int turn) {
      const int32_t i = static_cast<int32_t>(threadIdx.x) % 128 + 128 * turn;
      token = i / kVectors;
      row = i % kVectors * 4;
    }
  };

  static __device__ __forceinline__ int32_t staged(const Place& place, int row) {
    return row + (kGateUp ? place.row / kTogether * 2 * kTogether + place.row % kTogether : place.row);
  }
  static __device__ __forceinline__ float4 sum_of(const float4& a, const float4& b) {
    return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
  }
  __device__ __forceinline__ bool is_stored(const Place& place, int32_t count) const {
    return place.token < min(count, kCount) && first_ + place.row < args_.rows;
  }
  __device__ __forceinline__ float4 biased(const float* bias, const Place& place, const float4& sums) const {
    if (bias == nullptr) return sums;
    return sum_of(sums, *reinterpret_cast<const float4*>(bias + first_bias_ + first_ + place.row));
  }

  /// load(sums, row): loads for each turn the sums that are staged `row` rows behind the thread's place.
  template <class OutOf, class Load>
  __device__ __forceinline__ void store_all(int32_t count, const OutOf& out_of, const Load& load) const {
    int32_t tokens[kTurns];
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn)
      tokens[turn] = out_of(Place(turn).token);
    float4 values[kTurns];
    load(values, 0);
    float4 ups[kTurns];
    if constexpr (kGateUp) load(ups, kTogether);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const Place place(turn);
      if (!is_stored(place, count)) continue;
      values[turn] = biased(args_.bias, place, values[turn]);
      if constexpr (kGateUp) {
        const Gate<false> gated(args_.activation);
        const float4 gate = values[turn], up = biased(args_.up_bias, place, ups[turn]);
        values[turn] =
            make_float4(gated(gate.x, up.x), gated(gate.y, up.y), gated(gate.z, up.z), gated(gate.w, up.w));
      }
      store_four(tokens[turn] * args_.out_stride + first_ + place.row, values[turn]);
    }
  }

  __device__ __forceinline__ void store_four(int64_t at, const float4& value) const {
    if (!kGateUp && args_.add_to_out) return add_four(static_cast<float*>(args_.out) + at, value);
    if (args_.out_is_f32) {
      *reinterpret_cast<float4*>(static_cast<float*>(args_.out) + at) = value;
      return;
    }
    *reinterpret_cast<uint2*>(static_cast<__nv_bfloat16*>(args_.out) + at) =
        make_uint2(bf16_pair(value.x, value.y), bf16_pair(value.z, value.w));
  }

  const ProductArgs& args_;
  int32_t first_;
  int64_t first_bias_;
};

}  // namespace minfer::cuda
