#include <cstdint>

#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/delta/delta_sequence.h"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/warp.cuh"

// The state-space model of Mamba-2 (Dao & Gu 2024, arXiv:2405.21060; MambaScanArgs has the formulas), token after token, so that a result
// depends neither on how a prompt is cut nor on other sequences.
//
//   xbc        [tokens, channels] f32: x of the heads, B and C of the groups, rows `stride` apart
//   dt         [tokens, heads] f32
//   gate, out  [tokens, heads * head_size] f32
//   state      [num_slots, heads, state_size, head_size] f32
//
// A block takes kColumns columns of a head of a sequence; columns are independent. Four lanes of a warp share a column, and have four of
// every 16 rows of the state each. They keep them in registers during all tokens of the step, so that a state is read and written once a
// step. It is read before begin_kernel(), while the convolution runs. B, C, x, gates and steps come through shared memory, kTileTokens
// tokens at a time; the next ones are copied while these are computed. Sums over the four lanes are made for kGroupTokens tokens at once,
// so that each lane ends with the output of one of them. FLOPs: 5 for each element of the state and token.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kColumnsOfWarp = 8;
constexpr int kColumns = kWarps * kColumnsOfWarp;
constexpr int kRowsOfLanes = 4 * kWarpSize / kColumnsOfWarp;
constexpr int kGroupTokens = kWarpSize / kColumnsOfWarp;
constexpr int kTileTokens = 2 * kGroupTokens;
static_assert(kColumns == kWarpSize);  // a lane copies a column of x and of gates

struct ScanParams {
  const float* xbc;
  int64_t stride;
  const float* dt;
  int64_t dt_stride;
  const float* gate;
  int64_t gate_stride;
  float* out;
  int64_t out_stride;
  const float* dt_bias;
  const float* decay;
  const float* skip;
  float* state;
  DeltaSequences sequences;
  int32_t groups;
  int32_t heads;
  int32_t state_size;
  int32_t head_size;
  int32_t column_blocks;  ///< of a head
};

/// The inputs of some tokens. kSize: rows of a state, with zeros behind its own.
template <int kSize>
struct ScanTile {
  float b[kTileTokens][kSize];
  float c[kTileTokens][kSize];
  float x[kTileTokens][kColumns];
  float gate[kTileTokens][kColumns];
  float decay[kTileTokens];  ///< e^(decay d)
  float step[kTileTokens];   ///< d
};

/// Starts the copy of tokens [first, first + count), one warp a token. `column`: of the lane among all heads' columns; -1: none. Gives dt
/// of the thread's token.
template <int kSize>
__device__ float stage(const ScanParams& p, int64_t first, int32_t count, int32_t head, int32_t column,
                       ScanTile<kSize>& tile) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % kWarpSize;
  const int32_t of_b = p.heads * p.head_size + head / (p.heads / p.groups) * p.state_size;
  for (int32_t t = thread / kWarpSize; t < count; t += kWarps) {
    const float* row = p.xbc + (first + t) * p.stride;
#pragma unroll
    for (int32_t i = lane; i < kSize; i += kWarpSize) {
      const bool is_there = i < p.state_size;
      const float* b = row + of_b + (is_there ? i : 0);
      copy_word_async(&tile.b[t][i], b, is_there);
      copy_word_async(&tile.c[t][i], b + p.groups * p.state_size, is_there);
    }
    copy_word_async(&tile.x[t][lane], row + max(column, 0), column >= 0);
    copy_word_async(&tile.gate[t][lane], p.gate + (first + t) * p.gate_stride + max(column, 0), column >= 0);
  }
  commit_copies();
  return thread < count ? p.dt[(first + thread) * p.dt_stride + head] : 0.0f;
}

/// Waits for a tile's copies and makes its steps. All threads call it; afterwards all of them see the tile.
template <int kSize>
__device__ void make_steps(const ScanParams& p, int32_t count, int32_t head, float dt,
                           ScanTile<kSize>& tile) {
  const auto thread = static_cast<int32_t>(threadIdx.x);
  if (thread < count) {
    const float x = dt + p.dt_bias[head], step = fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
    tile.step[thread] = step;
    tile.decay[thread] = expf(p.decay[head] * step);
  }
  wait_for_copies<0>();
  __syncthreads();
}

/// A lane's rows of its column.
template <int kSize>
struct ScanState {
  float at[kSize / kRowsOfLanes][4];

  /// Calls body(element, row) for each row that there is; `first_row`: of the lane.
  template <class Body>
  __device__ __forceinline__ void for_each_row(int32_t state_size, int32_t first_row, const Body& body) {
#pragma unroll
    for (int i = 0; i < kSize / kRowsOfLanes; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int32_t row = i * kRowsOfLanes + first_row + j;
        if (row < state_size) body(at[i][j], row);
      }
    }
  }
  /// h = decay h + B update; gives the lane's part of h^T C.
  __device__ __forceinline__ float step(const float* b, const float* c, float decay, float update) {
    float sums[4] = {};
#pragma unroll
    for (int i = 0; i < kSize / kRowsOfLanes; ++i) {
      const float4 b4 = *reinterpret_cast<const float4*>(b + i * kRowsOfLanes);
      const float4 c4 = *reinterpret_cast<const float4*>(c + i * kRowsOfLanes);
      const float of_b[4] = {b4.x, b4.y, b4.z, b4.w}, of_c[4] = {c4.x, c4.y, c4.z, c4.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        at[i][j] = fmaf(of_b[j], update, decay * at[i][j]);
        sums[j] = fmaf(at[i][j], of_c[j], sums[j]);
      }
    }
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }
};

template <int kSize>
__global__ void __launch_bounds__(kWarps* kWarpSize) mamba_scan_kernel(ScanParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  __shared__ alignas(16) ScanTile<kSize> tiles[2];
  // The last sequences come first: prompts are behind decoding sequences, and take longest.
  const auto block = static_cast<int32_t>(blockIdx.x), of_sequence = p.heads * p.column_blocks;
  const DeltaSequence sequence(p.sequences, p.sequences.count - 1 - block / of_sequence);
  const int32_t head = block % of_sequence / p.column_blocks;
  const int32_t first_column = block % p.column_blocks * kColumns, columns = p.head_size - first_column;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize;
  const int32_t own = static_cast<int32_t>(threadIdx.x) / kWarpSize * kColumnsOfWarp + lane % kColumnsOfWarp;
  const int32_t first_row = 4 * (lane / kColumnsOfWarp);
  const int32_t column = head * p.head_size + first_column;
  float* const memory =
      p.state + (int64_t{sequence.slot} * p.heads + head) * p.state_size * p.head_size + first_column + own;
  ScanState<kSize> state = {};
  if (!sequence.is_fresh && own < columns) {
    state.for_each_row(p.state_size, first_row,
                       [&](float& value, int32_t row) { value = memory[int64_t{row} * p.head_size]; });
  }
  begin_kernel(stamps);
  allow_next_kernel();
  const int32_t group_token = lane / kColumnsOfWarp;  // of a group, whose output is the lane's
  if (sequence.is_padding) {
    for (int32_t t = group_token; t < sequence.count; t += kGroupTokens)
      if (own < columns) p.out[(sequence.first + t) * p.out_stride + column + own] = 0.0f;
    return;
  }
  const float skip = p.skip[head];
  const auto stage_from = [&](int32_t first, int32_t count, ScanTile<kSize>& tile) {
    return stage(p, sequence.first + first, count, head, lane < columns ? column + lane : -1, tile);
  };
  const auto tokens_from = [&](int32_t first) { return min(kTileTokens, max(sequence.count - first, 0)); };
  const float first_dt = stage_from(0, tokens_from(0), tiles[0]);
  make_steps(p, tokens_from(0), head, first_dt, tiles[0]);
  for (int32_t first = 0; first < sequence.count; first += kTileTokens) {
    const ScanTile<kSize>& tile = tiles[first / kTileTokens % 2];
    ScanTile<kSize>& next = tiles[(first / kTileTokens + 1) % 2];  // all warps have left it
    const int32_t count = tokens_from(first), next_count = tokens_from(first + kTileTokens);
    const float dt = stage_from(first + kTileTokens, next_count, next);
    for (int32_t group = 0; group < count; group += kGroupTokens) {
      float values[kGroupTokens] = {};
      const auto add = [&](int i) {
        const int32_t t = group + i;
        values[i] = state.step(tile.b[t] + first_row, tile.c[t] + first_row, tile.decay[t],
                               tile.step[t] * tile.x[t][own]);
      };
      if (group + kGroupTokens <= count) {
#pragma unroll
        for (int i = 0; i < kGroupTokens; ++i)
          add(i);
      } else {
#pragma unroll
        for (int i = 0; i < kGroupTokens; ++i)
          if (group + i < count) add(i);
      }
      float value = scattered_sum<kGroupTokens, kWarpSize / 2>(values);
      const int32_t t = group + group_token;
      if (t >= count || own >= columns) continue;
      const float gate = tile.gate[t][own];
      value = fmaf(skip, tile.x[t][own], value) * gate / (1.0f + expf(-gate));
      p.out[(sequence.first + first + t) * p.out_stride + column + own] = value;
    }
    make_steps(p, next_count, head, dt, next);
  }
  if (own >= columns) return;
  state.for_each_row(p.state_size, first_row,
                     [&](float& value, int32_t row) { memory[int64_t{row} * p.head_size] = value; });
}

template <int kSize>
void launch_scan(Launch& launch, const ScanParams& params) {
  const int64_t blocks = int64_t{params.sequences.count} * params.heads * params.column_blocks;
  launch.reads_ahead(blocks * kColumns * params.state_size * static_cast<int64_t>(sizeof(float)))(
      "mamba_scan", mamba_scan_kernel<kSize>, dim3(static_cast<unsigned>(blocks)), dim3(kWarps * kWarpSize),
      0, params);
}

}  // namespace

void mamba_scan(Launch& launch, const ForwardBatch& batch, const MambaScanArgs& args) {
  const DeltaNetShape& shape = args.shape;
  check_delta("mamba_scan", batch, shape);
  check_f32("mamba_scan: xbc", args.xbc, batch.num_tokens, shape.channels());
  check_f32("mamba_scan: dt", args.dt, batch.num_tokens, shape.value_heads);
  for (const Tensor& columns : {args.gate, args.out})
    check_f32("mamba_scan: gate and out", columns, batch.num_tokens, shape.value_columns());
  for (const Weight& of_heads : {args.dt_bias, args.decay, args.skip})
    check_f32("mamba_scan: dt_bias, decay and skip", of_heads, 1, shape.value_heads);
  if (batch.num_tokens == 0) return;
  const ScanParams params{.xbc = args.xbc.f32(),
                          .stride = args.xbc.stride,
                          .dt = args.dt.f32(),
                          .dt_stride = args.dt.stride,
                          .gate = args.gate.f32(),
                          .gate_stride = args.gate.stride,
                          .out = args.out.f32(),
                          .out_stride = args.out.stride,
                          .dt_bias = static_cast<const float*>(args.dt_bias.data),
                          .decay = static_cast<const float*>(args.decay.data),
                          .skip = static_cast<const float*>(args.skip.data),
                          .state = args.state.delta,
                          .sequences = delta_sequences(batch, args.state),
                          .groups = shape.key_heads,
                          .heads = shape.value_heads,
                          .state_size = shape.key_size,
                          .head_size = shape.value_size,
                          .column_blocks = (shape.value_size + kColumns - 1) / kColumns};
  if (shape.key_size <= 64) return launch_scan<64>(launch, params);
  if (shape.key_size <= 128) return launch_scan<128>(launch, params);
  launch_scan<kMaxDeltaKeySize>(launch, params);
}

}  // namespace minfer::cuda
