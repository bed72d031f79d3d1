#pragma once

#include "kernels/cuda/delta/delta_sequence.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/ptx/warp.cuh"

// Parts of delta_rule.cu: a block's columns of a state in registers, and gates.
namespace minfer::cuda {

inline constexpr int kRuleWarps = 4;
inline constexpr int kRuleThreads = kRuleWarps * kWarpSize;
/// Columns of a head's state that a block has.
inline constexpr int kRuleColumns = 32;
/// Groups of threads that have the same columns of different rows.
inline constexpr int kRowGroups = 16;

struct RuleParams {
  const float* qkv;
  int64_t stride;
  const float* gates;
  int64_t gate_stride;
  const float* alphas;  ///< where rows decay, else null
  int64_t alpha_stride;
  float* out;
  int64_t out_stride;
  float* state;
  const float* dt_bias;
  const float* decay;
  DeltaSequences sequences;
  int32_t key_heads;
  int32_t value_heads;
  int32_t key_size;
  int32_t value_size;
  bool in_turn;
  int32_t column_blocks;  ///< of a head
};

/// A block's work: columns [first_column, ...) of a value head of a sequence.
struct RuleBlock {
  int32_t sequence;
  int32_t head;
  int32_t key_head;
  int32_t first_column;

  /// The last sequences come first: prompts are behind decoding sequences, and take longest.
  __device__ __forceinline__ RuleBlock(const RuleParams& p, int64_t block) {
    const int32_t of_sequence = p.value_heads * p.column_blocks;
    sequence = p.sequences.count - 1 - static_cast<int32_t>(block / of_sequence);
    const auto within = static_cast<int32_t>(block % of_sequence);
    head = within / p.column_blocks;
    key_head = p.in_turn ? head % p.key_heads : head / (p.value_heads / p.key_heads);
    first_column = within % p.column_blocks * kRuleColumns;
  }
  __device__ __forceinline__ const float* q(const RuleParams& p, int64_t token) const {
    return p.qkv + token * p.stride + key_head * p.key_size;
  }
  __device__ __forceinline__ const float* k(const RuleParams& p, int64_t token) const {
    return q(p, token) + p.key_heads * p.key_size;
  }
  __device__ __forceinline__ const float* v(const RuleParams& p, int64_t token) const {
    return p.qkv + token * p.stride + 2 * p.key_heads * p.key_size + head * p.value_size + first_column;
  }
  /// Where rows decay: alphas of the head's rows.
  __device__ __forceinline__ const float* alphas(const RuleParams& p, int64_t token) const {
    return p.alphas + token * p.alpha_stride + head * p.key_size;
  }
  __device__ __forceinline__ float* out(const RuleParams& p, int64_t token) const {
    return p.out + token * p.out_stride + head * p.value_size + first_column;
  }
  /// The block's part of the state: [key_size, value_size] from first_column on.
  __device__ __forceinline__ float* state(const RuleParams& p, int32_t slot) const {
    return p.state + (int64_t{slot} * p.value_heads + head) * p.key_size * p.value_size + first_column;
  }
  __device__ __forceinline__ int32_t columns(const RuleParams& p) const {
    return min(kRuleColumns, p.value_size - first_column);
  }
};

/// Four elements of a row with `count` elements, zeros behind. kAligned: all four exist, at a multiple of 16 bytes.
template <bool kAligned>
__device__ __forceinline__ float4 load_quad(const float* row, int32_t first, int32_t count) {
  if constexpr (kAligned) return *reinterpret_cast<const float4*>(row + first);
  return {first < count ? row[first] : 0.0f, first + 1 < count ? row[first + 1] : 0.0f,
          first + 2 < count ? row[first + 2] : 0.0f, first + 3 < count ? row[first + 3] : 0.0f};
}

/// The same past the L1: for data that earlier kernels wrote, before begin_kernel() has waited for the kernel in front.
template <bool kAligned>
__device__ __forceinline__ float4 load_quad_of_state(const float* row, int32_t first, int32_t count) {
  if constexpr (kAligned) return __ldcg(reinterpret_cast<const float4*>(row + first));
  return {first < count ? __ldcg(row + first) : 0.0f, first + 1 < count ? __ldcg(row + first + 1) : 0.0f,
          first + 2 < count ? __ldcg(row + first + 2) : 0.0f,
          first + 3 < count ? __ldcg(row + first + 3) : 0.0f};
}

template <bool kAligned>
__device__ __forceinline__ void store_quad(float* row, int32_t first, int32_t count, const float4& quad) {
  if constexpr (kAligned) {
    *reinterpret_cast<float4*>(row + first) = quad;
    return;
  }
  if (first < count) row[first] = quad.x;
  if (first + 1 < count) row[first + 1] = quad.y;
  if (first + 2 < count) row[first + 2] = quad.z;
  if (first + 3 < count) row[first + 3] = quad.w;
}

/// The four columns of the block that a thread has, and its rows: [64 r + 4 group, ... + 4) for each r.
struct RuleThread {
  int32_t column;
  int32_t group;

  /// For many tokens: one warp has all rows of a column, and sums over them without the other warps.
  __device__ __forceinline__ static RuleThread of_warps_columns() {
    const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
    return {static_cast<int32_t>(threadIdx.x) / kWarpSize * 8 + lane % 2 * 4, lane / 2};
  }
  /// For one token, when only reading and writing the state takes time: warps read whole lines of 128 bytes.
  __device__ __forceinline__ static RuleThread of_whole_lines() {
    return {static_cast<int32_t>(threadIdx.x) % 8 * 4, static_cast<int32_t>(threadIdx.x) / 8};
  }
};

/// A thread's part of a state: four columns of 4 kQuads rows.
template <int kQuads>
struct RuleState {
  static constexpr int kRows = 4 * kQuads;
  float4 at[kRows];

  __device__ __forceinline__ static int32_t row_of(const RuleThread& place, int r) {
    return r / 4 * 4 * kRowGroups + 4 * place.group + r % 4;
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (float4& row : at)
      row = {};
  }
  template <bool kAligned>
  __device__ __forceinline__ void load(const RuleParams& p, const float* state, const RuleThread& place,
                                       int32_t columns) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int32_t row = row_of(place, r);
      at[r] = {};
      if (kAligned || row < p.key_size)
        at[r] = load_quad_of_state<kAligned>(state + int64_t{row} * p.value_size, place.column, columns);
    }
  }
  template <bool kAligned>
  __device__ __forceinline__ void store(const RuleParams& p, float* state, const RuleThread& place,
                                        int32_t columns) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int32_t row = row_of(place, r);
      if (kAligned || row < p.key_size)
        store_quad<kAligned>(state + int64_t{row} * p.value_size, place.column, columns, at[r]);
    }
  }
  /// The thread's part of S^T x.
  __device__ __forceinline__ float4 product(const float (&x)[kRows]) const {
    float4 sum = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      sum.x = fmaf(at[r].x, x[r], sum.x);
      sum.y = fmaf(at[r].y, x[r], sum.y);
      sum.z = fmaf(at[r].z, x[r], sum.z);
      sum.w = fmaf(at[r].w, x[r], sum.w);
    }
    return sum;
  }
  __device__ __forceinline__ void scale(float factor) {
#pragma unroll
    for (float4& row : at)
      row = {factor * row.x, factor * row.y, factor * row.z, factor * row.w};
  }
  /// Each row by its own factor.
  __device__ __forceinline__ void scale(const float (&factors)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      at[r] = {factors[r] * at[r].x, factors[r] * at[r].y, factors[r] * at[r].z, factors[r] * at[r].w};
  }
  /// S += k update^T.
  __device__ __forceinline__ void add(const float (&k)[kRows], const float4& update) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      at[r].x = fmaf(k[r], update.x, at[r].x);
      at[r].y = fmaf(k[r], update.y, at[r].y);
      at[r].z = fmaf(k[r], update.z, at[r].z);
      at[r].w = fmaf(k[r], update.w, at[r].w);
    }
  }
};

/// A thread's rows of q or k, whose head begins at `head`.
template <int kQuads, bool kAligned>
__device__ __forceinline__ void load_rows(const float* head, int32_t size, const RuleThread& place,
                                          float (&rows)[4 * kQuads]) {
#pragma unroll
  for (int quad = 0; quad < kQuads; ++quad) {
    const float4 four = load_quad<kAligned>(head, RuleState<kQuads>::row_of(place, 4 * quad), size);
    rows[4 * quad] = four.x;
    rows[4 * quad + 1] = four.y;
    rows[4 * quad + 2] = four.z;
    rows[4 * quad + 3] = four.w;
  }
}

__device__ __forceinline__ float softplus(float x) {
  return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}
__device__ __forceinline__ float sigmoid(float x) {
  return 1.0f / (1.0f + expf(-x));
}

/// Gates of a token and a value head: a = e^(decay softplus(alpha + dt_bias)) and b = sigmoid(beta).
struct RuleGates {
  float decay;
  float strength;
};

/// Gates of a token where each row has its own a: b is the sigmoid of beta.
__device__ __forceinline__ float beta_of_rows(const RuleParams& p, int32_t head, int64_t token) {
  return p.gates[token * p.gate_stride + head];
}
__device__ __forceinline__ float decay_of_row(const RuleParams& p, int32_t head, float alpha, int32_t row) {
  return expf(p.decay[head] * softplus(alpha + p.dt_bias[head * p.key_size + row]));
}

/// The inputs of RuleGates.
struct RawGates {
  float alpha;
  float beta;

  __device__ __forceinline__ static RawGates load(const RuleParams& p, int32_t head, int64_t token) {
    const int32_t group = p.in_turn ? p.value_heads : p.value_heads / p.key_heads;
    const float* of_head = p.gates + token * p.gate_stride + head / group * 2 * group + head % group;
    return {of_head[group], of_head[0]};
  }
  /// The gates, with the logarithm of a instead of a.
  __device__ __forceinline__ RuleGates logs(const RuleParams& p, int32_t head) const {
    return {p.decay[head] * softplus(alpha + p.dt_bias[head]), sigmoid(beta)};
  }
  __device__ __forceinline__ RuleGates gates(const RuleParams& p, int32_t head) const {
    const RuleGates made = logs(p, head);
    return {expf(made.decay), made.strength};
  }
};

}  // namespace minfer::cuda
