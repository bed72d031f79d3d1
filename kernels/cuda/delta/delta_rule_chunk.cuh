#pragma once

#include "kernels/cuda/delta/delta_rule.cuh"
#include "kernels/cuda/delta/split_product.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"

// Long prompts in chunks of 16 tokens on tensor cores (Yang et al. 2024, "Parallelizing linear transformers with the delta rule", section
// 3.2). With S before a chunk, A_j = a_0 ... a_j and D(i, j) = a_(i+1) ... a_j:
//
//   (I + L) U = b (V - A S^T K)        L[j][i] = b_j D(i, j) (k_i . k_j) for i < j, else 0
//   O = A S^T Q + M U                  M[j][i] = D(i, j) (k_i . q_j) for i <= j, else 0
//   S = A_15 S + K^T (D(., 15) U)
//
// S stays in f32 in the accumulators of two warps, transposed: each has 16 columns of all 128 rows.
// Accumulators of products with tokens or rows on the side of 8 have the layout of the operand with columns on
// the side of 16, so the next product takes the result as it is. Meanwhile two other warps copy q, k and v of
// the next chunk and compute T = (I + L)^-1, M and the decays for it. The block has one barrier for each chunk.
//
// Operands are pairs of bf16 (split_product.cuh).
namespace minfer::cuda {

inline constexpr int kChunkTokens = kSplitRows;
inline constexpr int kChunkKeys = 128;
inline constexpr int kChunkWarps = 2;  ///< that have the state; the same number copies chunks
inline constexpr int kRowTiles = kChunkKeys / 8;
/// The fewest tokens of sequences in chunks; fewer tokens are computed by groups.
inline constexpr int kLeastChunked = kChunkTokens;
static_assert(2 * kChunkWarps == kRuleWarps && 16 * kChunkWarps == kRuleColumns);

/// A chunk as the warps with the state read it.
struct RuleChunk {
  SplitMatrix<kChunkKeys> k, q;
  SplitMatrix<kChunkTokens> inverse, values;  ///< T and M, [j][i]
  float v[kChunkTokens][kRuleColumns + 4];
  float kept[kChunkTokens];      ///< A_j
  float strength[kChunkTokens];  ///< b_j
  float last[kChunkTokens];      ///< D(j, 15)
};

/// A chunk as it comes from memory, and data that only its makers use.
struct RawChunk {
  alignas(16) float k[kChunkTokens][kChunkKeys];
  alignas(16) float q[kChunkTokens][kChunkKeys];
  alignas(16) float v[kChunkTokens][kRuleColumns];
  float lower[kChunkTokens][kChunkTokens + 4];  ///< L transposed: [i][j]
};

struct ChunkShared {
  RuleChunk chunks[2];
  RawChunk raw;
};

/// The warps with the state: warp w has columns [16 w, 16 w + 16) of the block.
class ChunkState {
 public:
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (auto& tile : at_)
#pragma unroll
      for (float& element : tile)
        element = 0.0f;
  }
  __device__ __forceinline__ void load(const RuleParams& p, const float* state) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        at_[tile][e] = __ldcg(state + place(p, tile, e));
  }
  __device__ __forceinline__ void store(const RuleParams& p, float* state) const {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        state[place(p, tile, e)] = at_[tile][e];
  }

  /// Computes a chunk with `count` tokens. `out`: the row of its first token.
  __device__ __forceinline__ void run(const RuleChunk& chunk, float* out, int64_t out_stride, int32_t count) {
    SplitSum answers, values;  // of eight tokens a tile
#pragma unroll
    for (int step = 0; step < kRowTiles / 2; ++step) {
      const SplitFragment state = SplitFragment::of(at_[2 * step], at_[2 * step + 1]);
      uint32_t high[4], low[4];
      load_matrices(high, rows_address(chunk.k.high, step));
      load_matrices(low, rows_address(chunk.k.low, step));
      answers.add(state, high, low);
      load_matrices(high, rows_address(chunk.q.high, step));
      load_matrices(low, rows_address(chunk.q.low, step));
      values.add(state, high, low);
    }
    const int32_t column = first_column();
    float wanted[2][4];  // b (v - A S^T k)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t token = token_of(half, e);
        const float kept = chunk.kept[token];
        wanted[half][e] =
            chunk.strength[token] * (chunk.v[token][column + e / 2 * 8] - kept * answers.at(half, e));
        values.main[half][e] *= kept;
        values.rest[half][e] *= kept;
      }
    }
    SplitSum solved;
    multiply(solved, SplitFragment::of(wanted[0], wanted[1]), chunk.inverse);
    float updates[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        updates[half][e] = solved.at(half, e);
    multiply(values, SplitFragment::of(updates[0], updates[1]), chunk.values);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t token = token_of(half, e);
        if (token < count) out[token * out_stride + column + e / 2 * 8] = values.at(half, e);
        updates[half][e] *= chunk.last[token];
      }
    }
    add(SplitFragment::of(updates[0], updates[1]), chunk);
  }

 private:
  __device__ __forceinline__ static int32_t first_column() {
    return static_cast<int32_t>(threadIdx.x) / kWarpSize * 16 + lane_group();
  }
  __device__ __forceinline__ static int32_t token_of(int half, int e) {
    return 8 * half + 2 * lane_in_group() + e % 2;
  }
  __device__ __forceinline__ static int64_t place(const RuleParams& p, int tile, int e) {
    const int64_t row = 8 * tile + 2 * lane_in_group() + e % 2;
    return row * p.value_size + first_column() + e / 2 * 8;
  }
  /// sum += x matrix^T, [columns, tokens].
  __device__ __forceinline__ static void multiply(SplitSum& sum, const SplitFragment& x,
                                                  const SplitMatrix<kChunkTokens>& matrix) {
    uint32_t high[4], low[4];
    load_matrices(high, rows_address(matrix.high, 0));
    load_matrices(low, rows_address(matrix.low, 0));
    sum.add(x, high, low);
  }
  /// S = A_15 S + K^T updates.
  __device__ __forceinline__ void add(const SplitFragment& updates, const RuleChunk& chunk) {
    const float kept = chunk.kept[kChunkTokens - 1];
#pragma unroll
    for (int step = 0; step < kRowTiles / 2; ++step) {
      uint32_t high[4], low[4];
      load_transposed(high, columns_address(chunk.k.high, step));
      load_transposed(low, columns_address(chunk.k.low, step));
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (float& element : at_[2 * step + half])
          element *= kept;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_add<__nv_bfloat16>(at_[2 * step + half], updates.high, low[2 * half], low[2 * half + 1]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_add<__nv_bfloat16>(at_[2 * step + half], updates.low, high[2 * half], high[2 * half + 1]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        multiply_add<__nv_bfloat16>(at_[2 * step + half], updates.high, high[2 * half], high[2 * half + 1]);
    }
  }

  float at_[kRowTiles][4];  ///< rows [8 i, 8 i + 8) of the state
};

/// The warps that make chunks. The first warp computes T, the other one M.
class ChunkMaker {
 public:
  __device__ __forceinline__ ChunkMaker(const RuleParams& p, const RuleBlock& block,
                                        const DeltaSequence& sequence)
      : p_(p),
        block_(block),
        sequence_(sequence),
        thread_(static_cast<int32_t>(threadIdx.x) - kChunkWarps * kWarpSize),
        lane_(thread_ % kWarpSize) {}

  /// Starts the copy of the chunk that begins with token `first` of the sequence, with zeros behind the last token.
  __device__ __forceinline__ void ask(RawChunk& raw, int32_t first) {
    for (int32_t t = thread_ / kWarpSize; t < kChunkTokens; t += kChunkWarps) {
      const bool is_there = first + t < sequence_.count;
      const int64_t token = sequence_.first + (is_there ? first + t : 0);
      copy_async(shared_address(&raw.k[t][4 * lane_]), block_.k(p_, token) + 4 * lane_, is_there);
      copy_async(shared_address(&raw.q[t][4 * lane_]), block_.q(p_, token) + 4 * lane_, is_there);
      if (lane_ < kRuleColumns / 4)
        copy_async(shared_address(&raw.v[t][4 * lane_]), block_.v(p_, token) + 4 * lane_, is_there);
    }
    commit_copies();
    has_gates_ = lane_ < kChunkTokens && first + lane_ < sequence_.count;
    if (has_gates_) gates_ = RawGates::load(p_, block_.head, sequence_.first + first + lane_);
  }

  /// Makes `chunk` from the copied data, and starts the copy of the next one, from token `next` on.
  __device__ __forceinline__ void make(RuleChunk& chunk, RawChunk& raw, int32_t next) {
    const RuleGates gates = has_gates_ ? gates_.logs(p_, block_.head) : RuleGates{0.0f, 0.0f};
    // Lane j has the logarithm of A_j. In double: with strong decay, logarithms are large and their differences small.
    const double decay = warp_sum_up_to(static_cast<double>(gates.decay));
    const double decay_of_all = __shfl_sync(kWholeWarp, decay, kChunkTokens - 1);
    wait_for_copies<0>();
    barrier_of(1, kChunkWarps * kWarpSize);
    for (int32_t t = thread_ / kWarpSize; t < kChunkTokens; t += kChunkWarps) {
      split(raw.k[t], chunk.k.high[t], chunk.k.low[t]);
      split(raw.q[t], chunk.q.high[t], chunk.q.low[t]);
      chunk.v[t][lane_] = raw.v[t][lane_];
    }
    barrier_of(1, kChunkWarps * kWarpSize);
    if (next < sequence_.count) ask(raw, next);
    if (thread_ < kWarpSize) {
      if (lane_ < kChunkTokens) {
        chunk.kept[lane_] = expf(static_cast<float>(decay));
        chunk.strength[lane_] = gates.strength;
        chunk.last[lane_] = expf(static_cast<float>(decay_of_all - decay));
      }
      make_inverse(chunk, raw, decay, gates.strength);
    } else {
      make_values(chunk, decay);
    }
  }

 private:
  __device__ __forceinline__ void split(const float (&row)[kChunkKeys], __nv_bfloat16* high,
                                        __nv_bfloat16* low) const {
    const float4 four = *reinterpret_cast<const float4*>(&row[4 * lane_]);
    const SplitPair first(four.x, four.y), second(four.z, four.w);
    *reinterpret_cast<uint2*>(high + 4 * lane_) = {first.high, second.high};
    *reinterpret_cast<uint2*>(low + 4 * lane_) = {first.low, second.low};
  }

  /// x k^T, [tokens j, tokens i], 16 j and 8 i a tile. Even and odd steps have separate sums: nothing else hides their latency.
  __device__ __forceinline__ static void products_with_keys(const SplitMatrix<kChunkKeys>& x,
                                                            const SplitMatrix<kChunkKeys>& k,
                                                            float (&products)[2][4]) {
    SplitSum sums[2];
#pragma unroll
    for (int step = 0; step < kRowTiles / 2; ++step) {
      SplitFragment rows;
      uint32_t high[4], low[4];
      load_matrices(rows.high, columns_address(x.high, step));
      load_matrices(rows.low, columns_address(x.low, step));
      load_matrices(high, rows_address(k.high, step));
      load_matrices(low, rows_address(k.low, step));
      sums[step % 2].add(rows, high, low);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        products[half][e] = sums[0].at(half, e) + sums[1].at(half, e);
  }
  /// Calls body(product, j, i, e) with each of a lane's products times D(i, j); for i > j with 0.
  template <class Body>
  __device__ __forceinline__ static void for_each_decayed(const float (&products)[2][4], double decay,
                                                          const Body& body) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int32_t j = lane_group() + e / 2 * 8, i = 8 * half + 2 * lane_in_group() + e % 2;
        const double to = __shfl_sync(kWholeWarp, decay, j), from = __shfl_sync(kWholeWarp, decay, i);
        body(i <= j ? products[half][e] * expf(static_cast<float>(to - from)) : 0.0f, j, i, e);
      }
    }
  }

  __device__ __forceinline__ void make_inverse(RuleChunk& chunk, RawChunk& raw, double decay,
                                               float strength) const {
    float products[2][4];
    products_with_keys(chunk.k, chunk.k, products);
    for_each_decayed(products, decay, [&](float product, int32_t j, int32_t i, int) {
      const float of_row = __shfl_sync(kWholeWarp, strength, j);
      raw.lower[i][j] = i < j ? of_row * product : 0.0f;
    });
    __syncwarp();
    // Lane c has column c of T: each known row is eliminated from the rows below.
    const int32_t column = lane_ % kChunkTokens;
    float known[kChunkTokens];
#pragma unroll
    for (int j = 0; j < kChunkTokens; ++j)
      known[j] = j == column ? 1.0f : 0.0f;
#pragma unroll
    for (int i = 0; i < kChunkTokens - 1; ++i) {
#pragma unroll
      for (int j = 0; j < kChunkTokens; ++j)
        if (j > i) known[j] = fmaf(-raw.lower[i][j], known[i], known[j]);
    }
    if (lane_ >= kChunkTokens) return;
#pragma unroll
    for (int j = 0; j < kChunkTokens; ++j) {
      const __nv_bfloat16 high = __float2bfloat16_rn(known[j]);
      chunk.inverse.high[j][column] = high;
      chunk.inverse.low[j][column] = __float2bfloat16_rn(known[j] - __bfloat162float(high));
    }
  }

  __device__ __forceinline__ void make_values(RuleChunk& chunk, double decay) const {
    float products[2][4];
    products_with_keys(chunk.q, chunk.k, products);
    float first = 0.0f;  // of a pair
    for_each_decayed(products, decay, [&](float product, int32_t j, int32_t i, int e) {
      if (e % 2 == 0) {
        first = product;
        return;
      }
      const SplitPair pair(first, product);
      *reinterpret_cast<uint32_t*>(&chunk.values.high[j][i - 1]) = pair.high;
      *reinterpret_cast<uint32_t*>(&chunk.values.low[j][i - 1]) = pair.low;
    });
  }

  const RuleParams& p_;
  const RuleBlock& block_;
  const DeltaSequence& sequence_;
  const int32_t thread_;
  const int32_t lane_;
  RawGates gates_ = {};  ///< for token `lane_` of the chunk being copied
  bool has_gates_ = false;
};

/// Computes all tokens of a sequence: loads and stores its columns of the state.
__device__ __forceinline__ void run_chunks(const RuleParams& p, const RuleBlock& block,
                                           const DeltaSequence& sequence, const Stamps& stamps,
                                           ChunkShared& shared) {
  float* const state_of_block = block.state(p, sequence.slot);
  if (static_cast<int>(threadIdx.x) < kChunkWarps * kWarpSize) {
    ChunkState state;
    sequence.is_fresh ? state.clear() : state.load(p, state_of_block);
    begin_kernel(stamps);
    allow_next_kernel();
    __syncthreads();
    for (int32_t first = 0, n = 0; first < sequence.count; first += kChunkTokens, ++n) {
      state.run(shared.chunks[n % 2], block.out(p, sequence.first + first), p.out_stride,
                sequence.count - first);
      __syncthreads();
    }
    state.store(p, state_of_block);
  } else {
    begin_kernel(stamps);
    allow_next_kernel();
    ChunkMaker maker(p, block, sequence);
    maker.ask(shared.raw, 0);
    maker.make(shared.chunks[0], shared.raw, kChunkTokens);
    __syncthreads();
    for (int32_t first = 0, n = 0; first < sequence.count; first += kChunkTokens, ++n) {
      if (first + kChunkTokens < sequence.count)
        maker.make(shared.chunks[(n + 1) % 2], shared.raw, first + 2 * kChunkTokens);
      __syncthreads();
    }
  }
}

}  // namespace minfer::cuda
