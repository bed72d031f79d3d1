#include <algorithm>
#include <cstdint>

#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/delta/delta_rule_chunk.cuh"
#include "kernels/cuda/delta/delta_rule_group.cuh"
#include "kernels/cuda/delta/delta_rule_rows.cuh"

// The gated delta rule (Yang et al. 2024, arXiv:2412.06464; DeltaRuleArgs has the formulas), as
//
//   u = b (v - a S^T k),  out = a S^T q + (k . q) u,  S = a S + k u^T
//
// It equals S = a S, S += k (b (v - S^T k))^T, out = S^T q, and multiplies the state by k and q in the same pass.
//
//   qkv     [tokens, channels] f32: heads of q, of k, of v, rows `stride` apart
//   gates   [tokens, 2 value_heads] f32: betas and alphas in groups; where rows decay, [tokens, value_heads], beside alphas of all rows
//   state   [num_slots, value_heads, key_size, value_size] f32
//   out     [tokens, value_columns] f32
//
// A block takes kRuleColumns columns of a value head of a sequence; columns are independent. They stay in registers during
// all tokens of the step, so that a state is read and written once a step: a thread has four columns of key_size / 16 rows.
//
//   one token     (decoding) Only the state moves: 2 x 64 KiB a head of 128 x 128. It is loaded before begin_kernel(), while the
//                 convolution runs. Warps have rows of all columns, and read and write lines of 128 bytes; sums go through shared memory.
//                 Steps that have only such sequences use a separate kernel, with fewer registers.
//   many tokens   (prompts) A warp has all rows of 8 columns, so that tokens follow each other without a barrier, four at a time
//                 (delta_rule_group.cuh). q, k, v and gates of kTileTokens tokens come through shared memory; the next ones are copied
//                 while these are computed.
//   rows          (states with a decay for each row: Kimi delta attention) delta_rule_rows.cuh
//   chunks        (kLeastChunked tokens and more, heads of 128) 16 tokens at a time on tensor cores (delta_rule_chunk.cuh).
//
// FLOPs: 7 for each element of the state and token. Keys of a size other than 64, 128 and 256, values that are no
// multiple of 32, and rows that are not aligned are processed one element at a time, with zeros behind their ends.
namespace minfer::cuda {
namespace {

/// Sums of one token by all warps: S^T k, S^T q and k . q.
struct RuleSums {
  float4 answers[kRuleWarps][kRuleColumns / 4];
  float4 values[kRuleWarps][kRuleColumns / 4];
  float k_dot_q[kRuleWarps];
  alignas(16) float decays[kMaxDeltaKeySize];  ///< of rows
};

__device__ __forceinline__ float4 operator+(const float4& a, const float4& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

/// Sums over the four lanes of a warp that have the same columns of different rows.
__device__ __forceinline__ float sum_of_rows(float value) {
  value += __shfl_xor_sync(kWholeWarp, value, 8);
  return value + __shfl_xor_sync(kWholeWarp, value, 16);
}
__device__ __forceinline__ float4 sum_of_rows(const float4& value) {
  return {sum_of_rows(value.x), sum_of_rows(value.y), sum_of_rows(value.z), sum_of_rows(value.w)};
}

/// Decays the rows of a state for a token. The block makes the decays once.
template <int kQuads>
__device__ __forceinline__ void decay_rows(const RuleParams& p, const RuleBlock& block, int64_t token,
                                           const RuleThread& place, RuleSums& shared,
                                           RuleState<kQuads>& state) {
  for (auto row = static_cast<int32_t>(threadIdx.x); row < RuleTile<kQuads>::kKeys; row += kRuleThreads)
    shared.decays[row] =
        row < p.key_size ? decay_of_row(p, block.head, block.alphas(p, token)[row], row) : 1.0f;
  __syncthreads();
  float decays[4 * kQuads];
  load_rows<kQuads, true>(shared.decays, RuleTile<kQuads>::kKeys, place, decays);
  state.scale(decays);
}

template <int kQuads, bool kAligned, bool kRows>
__device__ void run_one(const RuleParams& p, const RuleBlock& block, int64_t token, RuleSums& shared,
                        RuleState<kQuads>& state) {
  const RuleThread place = RuleThread::of_whole_lines();
  const int32_t columns = block.columns(p);
  if constexpr (kRows) decay_rows<kQuads>(p, block, token, place, shared, state);
  float k[4 * kQuads], q[4 * kQuads];
  load_rows<kQuads, kAligned>(block.k(p, token), p.key_size, place, k);
  load_rows<kQuads, kAligned>(block.q(p, token), p.key_size, place, q);
  const float4 v = load_quad<kAligned>(block.v(p, token), place.column, columns);
  const RuleGates gates = kRows ? RuleGates{1.0f, sigmoid(beta_of_rows(p, block.head, token))}
                                : RawGates::load(p, block.head, token).gates(p, block.head);
  float dot = 0.0f;
#pragma unroll
  for (int r = 0; r < 4 * kQuads; ++r)
    dot = fmaf(k[r], q[r], dot);
  dot = sum_of_rows(dot);
  const float4 answer = sum_of_rows(state.product(k)), value = sum_of_rows(state.product(q));
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize,
                warp = static_cast<int32_t>(threadIdx.x) / kWarpSize, quad = place.column / 4;
  if (lane < kRuleColumns / 4) {
    shared.answers[warp][quad] = answer;
    shared.values[warp][quad] = value;
    if (lane == 0) shared.k_dot_q[warp] = dot;
  }
  __syncthreads();
  float4 answers = {}, values = {};
  float k_dot_q = 0.0f;
#pragma unroll
  for (int w = 0; w < kRuleWarps; ++w) {
    answers = answers + shared.answers[w][quad];
    values = values + shared.values[w][quad];
    k_dot_q += shared.k_dot_q[w];
  }
  const auto update_of = [&](float wanted, float known) {
    return gates.strength * (wanted - gates.decay * known);
  };
  const float4 update = {update_of(v.x, answers.x), update_of(v.y, answers.y), update_of(v.z, answers.z),
                         update_of(v.w, answers.w)};
  if constexpr (!kRows) state.scale(gates.decay);
  state.add(k, update);
  if (static_cast<int32_t>(threadIdx.x) < kRuleColumns / 4) {
    const float4 out = {
        fmaf(k_dot_q, update.x, gates.decay * values.x), fmaf(k_dot_q, update.y, gates.decay * values.y),
        fmaf(k_dot_q, update.z, gates.decay * values.z), fmaf(k_dot_q, update.w, gates.decay * values.w)};
    store_quad<kAligned>(block.out(p, token), place.column, columns, out);
  }
}

template <int kQuads, bool kAligned>
__device__ void run_many(const RuleParams& p, const RuleBlock& block, const DeltaSequence& sequence,
                         RuleTile<kQuads> (&tiles)[2], RuleState<kQuads>& state) {
  const RuleThread place = RuleThread::of_warps_columns();
  const int32_t columns = block.columns(p);
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto tokens_from = [&](int32_t first) { return min(kTileTokens, sequence.count - first); };
  const auto raw_gates_from = [&](int32_t first) {
    return thread < tokens_from(first) ? RawGates::load(p, block.head, sequence.first + first + thread)
                                       : RawGates{};
  };
  const auto keep_gates = [&](RuleTile<kQuads>& tile, const RawGates& raw, int32_t first) {
    if (thread < kTileTokens)
      tile.gates[thread] = thread < tokens_from(first) ? raw.gates(p, block.head) : RuleGates{1.0f, 0.0f};
  };
  stage<kQuads, kAligned>(p, block, sequence.first, tokens_from(0), tiles[0]);
  keep_gates(tiles[0], raw_gates_from(0), 0);
  for (int32_t first = 0; first < sequence.count; first += kTileTokens) {
    RuleTile<kQuads>& tile = tiles[first / kTileTokens % 2];
    const int32_t count = tokens_from(first);
    wait_for_copies<0>();
    __syncthreads();
    if (first + kTileTokens < sequence.count) {  // into the tile that all warps have left
      stage<kQuads, kAligned>(p, block, sequence.first + first + kTileTokens,
                              tokens_from(first + kTileTokens), tiles[(first / kTileTokens + 1) % 2]);
    }
    const RawGates next = raw_gates_from(first + kTileTokens);
    make_factors(tile, count);
    __syncthreads();
    for (int32_t group = 0; group * kGroupTokens < count; ++group) {
      float out;
      group_step<kQuads>(tile, group, place, state, out);
      const int32_t token = group * kGroupTokens + thread / 2 % kGroupTokens,
                    column = place.column + thread % kWarpSize / 8;
      if (token < count && column < columns) block.out(p, sequence.first + first + token)[column] = out;
    }
    keep_gates(tiles[(first / kTileTokens + 1) % 2], next, first + kTileTokens);
  }
}

__device__ void clear_rows(const RuleParams& p, const RuleBlock& block, const DeltaSequence& sequence) {
  for (int32_t t = static_cast<int32_t>(threadIdx.x) / kWarpSize; t < sequence.count; t += kRuleWarps) {
    const int32_t column = static_cast<int32_t>(threadIdx.x) % kWarpSize;
    if (column < block.columns(p)) block.out(p, sequence.first + t)[column] = 0.0f;
  }
}

/// The fewest blocks of a multiprocessor for which registers must suffice. Decoding: 128 KiB of states in
/// flight, or 96 where decays of rows take registers too. Chunks: the number that shared memory has room for.
template <int kQuads, bool kMany, bool kRows>
inline constexpr int kLeastBlocks = kQuads > 2 ? 1
                                    : kMany    ? 3
                                    : kRows    ? 6
                                               : 8;

/// True if heads are computed in chunks.
template <int kQuads, bool kAligned, bool kMany, bool kRows>
inline constexpr bool kHasChunks = kMany&& kAligned && !kRows && RuleTile<kQuads>::kKeys == kChunkKeys;

/// Shared memory of a block.
template <int kQuads, bool kAligned, bool kMany, bool kRows>
inline constexpr size_t kSharedBytes =
    !kMany                                       ? sizeof(RuleSums)
    : kRows                                      ? std::max(sizeof(RuleSums), sizeof(RowsTile<kQuads>[2]))
    : kHasChunks<kQuads, kAligned, kMany, kRows> ? std::max(sizeof(ChunkShared), sizeof(RuleTile<kQuads>[2]))
                                                 : sizeof(RuleTile<kQuads>[2]);

/// kMany: whether sequences may bring several tokens; kRows: whether rows have decays of their own.
template <int kQuads, bool kAligned, bool kMany, bool kRows>
__global__ void __launch_bounds__(kRuleThreads, kLeastBlocks<kQuads, kMany, kRows>)
    delta_rule_kernel(RuleParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  extern __shared__ uint4 memory[];
  const RuleBlock block(p, blockIdx.x);
  const DeltaSequence sequence(p.sequences, block.sequence);
  if constexpr (kHasChunks<kQuads, kAligned, kMany, kRows>) {
    if (sequence.count >= kLeastChunked && !sequence.is_padding)
      return run_chunks(p, block, sequence, stamps, *reinterpret_cast<ChunkShared*>(memory));
  }
  const bool is_one = !kMany || sequence.count == 1;
  const RuleThread place = is_one ? RuleThread::of_whole_lines() : RuleThread::of_warps_columns();
  const int32_t columns = block.columns(p);
  RuleState<kQuads> state;
  if (sequence.is_fresh) {
    state.clear();
  } else {
    state.template load<kAligned>(p, block.state(p, sequence.slot), place, columns);
  }
  begin_kernel(stamps);
  allow_next_kernel();
  if (sequence.is_padding) return clear_rows(p, block, sequence);
  if (is_one) {
    run_one<kQuads, kAligned, kRows>(p, block, sequence.first, *reinterpret_cast<RuleSums*>(memory), state);
  } else if constexpr (kMany && kRows) {
    run_rows<kQuads, kAligned>(p, block, sequence, *reinterpret_cast<RowsTile<kQuads>(*)[2]>(memory), state);
  } else if constexpr (kMany) {
    run_many<kQuads, kAligned>(p, block, sequence, *reinterpret_cast<RuleTile<kQuads>(*)[2]>(memory), state);
  }
  state.template store<kAligned>(p, block.state(p, sequence.slot), place, columns);
}

template <int kQuads>
void launch_rule(Launch& launch, const RuleParams& params, bool is_aligned, bool has_many) {
  const int64_t blocks = int64_t{params.sequences.count} * params.value_heads * params.column_blocks;
  const bool is_whole = is_aligned && params.key_size == RuleTile<kQuads>::kKeys;
  const auto launch_one = [&]<bool kAligned, bool kMany, bool kRows>() {
    launch.reads_ahead(blocks * kRuleColumns * params.key_size * static_cast<int64_t>(sizeof(float)))(
        "delta_rule", delta_rule_kernel<kQuads, kAligned, kMany, kRows>, dim3(static_cast<unsigned>(blocks)),
        dim3(kRuleThreads), kSharedBytes<kQuads, kAligned, kMany, kRows>, params);
  };
  const auto run = [&]<bool kAligned, bool kMany>() {
    if (params.alphas != nullptr) return launch_one.template operator()<kAligned, kMany, true>();
    launch_one.template operator()<kAligned, kMany, false>();
  };
  if (has_many)
    return is_whole ? run.template operator()<true, true>() : run.template operator()<false, true>();
  is_whole ? run.template operator()<true, false>() : run.template operator()<false, false>();
}

}  // namespace

void delta_rule(Launch& launch, const ForwardBatch& batch, const DeltaRuleArgs& args) {
  const DeltaNetShape& shape = args.shape;
  check_delta("delta_rule", batch, shape);
  check_f32("delta_rule: qkv", args.qkv, batch.num_tokens, shape.channels());
  check_f32("delta_rule: gates", args.gates, batch.num_tokens,
            (shape.decays_rows ? 1 : 2) * int64_t{shape.value_heads});
  if (shape.decays_rows) check_f32("delta_rule: alphas", args.alphas, batch.num_tokens, shape.alphas());
  check_f32("delta_rule: out", args.out, batch.num_tokens, shape.value_columns());
  check_f32("delta_rule: dt_bias", args.dt_bias, 1, shape.alphas());
  check_f32("delta_rule: decay", args.decay, 1, shape.value_heads);
  if (batch.num_tokens == 0) return;
  const RuleParams params{.qkv = args.qkv.f32(),
                          .stride = args.qkv.stride,
                          .gates = args.gates.f32(),
                          .gate_stride = args.gates.stride,
                          .alphas = shape.decays_rows ? args.alphas.f32() : nullptr,
                          .alpha_stride = args.alphas.stride,
                          .out = args.out.f32(),
                          .out_stride = args.out.stride,
                          .state = args.state.delta,
                          .dt_bias = static_cast<const float*>(args.dt_bias.data),
                          .decay = static_cast<const float*>(args.decay.data),
                          .sequences = delta_sequences(batch, args.state),
                          .key_heads = shape.key_heads,
                          .value_heads = shape.value_heads,
                          .key_size = shape.key_size,
                          .value_size = shape.value_size,
                          .in_turn = shape.in_turn,
                          .column_blocks = (shape.value_size + kRuleColumns - 1) / kRuleColumns};
  const bool is_aligned =
      shape.value_size % kRuleColumns == 0 && has_aligned_quads(params.qkv, params.stride) &&
      has_aligned_quads(params.out, params.out_stride) && has_aligned_quads(params.state, 0) &&
      has_aligned_quads(params.alphas, params.alphas != nullptr ? params.alpha_stride : 0);
  // With as many tokens as sequences, each sequence has one token (see LaunchSizes).
  const bool has_many = batch.num_tokens != batch.num_sequences;
  if (shape.key_size <= RuleTile<1>::kKeys) return launch_rule<1>(launch, params, is_aligned, has_many);
  if (shape.key_size <= RuleTile<2>::kKeys) return launch_rule<2>(launch, params, is_aligned, has_many);
  launch_rule<4>(launch, params, is_aligned, has_many);
}

}  // namespace minfer::cuda
