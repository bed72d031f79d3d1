// QK norm, rotary position embedding and the write of K and V to the paged cache, in one launch.
//
//   x = head / sqrt(mean(head^2) + eps) * weight                   q and k, if norms are given (Qwen3)
//   x = (head - mean) / sqrt(variance + eps) * weight of the head  the same with layer norms (Command-R+)
//   y[a] = x[a] cos - x[b] sin,  y[b] = x[b] cos + x[a] sin        for each pair (a, b) of a head (Su et al.
//                                                                  2021); elements past rotary_size pass;
//                                                                  in front of the norm with norms_last (Hunyuan)
//   q = q_scale[position] q                                        if there are such scales (Llama 4)
//   v = v / sqrt(mean(v^2) + eps) * v_norm                         if there is such a norm (Gemma 4)
//
//   qkv       [tokens, (heads + 2 kv_heads) * head_size] f32, rows `stride` apart; if values are keys, [tokens, (heads + kv_heads) *
//             head_size]: v is k before norm and rotation, and is read twice; if q has gates, each head of q is followed
//             by its gate, which is not read; of a cache without values, [tokens, (heads + kv_heads) * head_size]
//   q_out     [tokens, heads * head_size] bf16 or f32, rows `q_stride` apart; may be the q of qkv
//   cos_sin   [max positions, rotary_size / 2, 2] f32
//   k, v      [num_blocks, kv_heads, block_size, head_size] f32, f16, bf16 or fp8 e4m3 (saturating)
//
// A warp takes kRows heads of one token, a block kWarps times as many: grid (tokens, heads / (kWarps kRows)). It
// takes one head if there are few tokens or heads beyond 256, otherwise several: all are loaded before the first
// is waited for, and share the angles. A lane takes two pairs, which are four elements, at a time, and keeps them
// in registers from load to store. Bytes: qkv read once, q, k and v written once. Positions, slots and the table
// of angles belong to the step's inputs, so they are read before begin_kernel(). Attention follows and has much
// to load beforehand, so it may start at once. A token with a negative slot is padding: its k and v are dropped.
//
// Alignment: qkv's rows to two elements; head_size and rotary_size are multiples of 4.
#include <string>

#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/ptx/vector_io.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/element_types.h"

namespace minfer::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kManyTokens = 256;
constexpr int kRowsOfMany = 4;
/// Groups of two pairs per lane: for most models' heads, and for the largest.
constexpr int32_t kMostOfFew = 256;
constexpr int kFewQuads = kMostOfFew / (4 * 32);
constexpr int kManyQuads = kMaxHeadSize / (4 * 32);

struct RopeParams {
  const float* qkv;
  int64_t stride;
  void* q_out;
  int64_t q_stride;
  const int32_t* positions;
  const int32_t* slots;
  const float* cos_sin;
  const float* q_norm;
  const float* k_norm;
  const float* v_norm;
  bool layer_norms;  ///< norms of q and k
  bool v_is_k;
  bool q_has_gate;
  bool norms_last;
  int32_t rows;  ///< heads of q, k and v
  float norm_eps;
  const float* q_scale;
  int32_t heads;
  int32_t head_size;
  int32_t rotary_size;
  bool halves;  ///< RopePairing::halves
  KvSlots cache;
  void* k;
  void* v;
};

/// Two pairs of a head as they lie in memory: two pieces of two elements. If pairs are interleaved, and past rotary_size,
/// a piece is a pair. With halves, one piece has the first elements of both pairs, the other the second ones.
struct Quad {
  int32_t at[2];  ///< element of the head at which each piece begins
  bool split;     ///< pairs run across the pieces
  bool rotated;
};

__device__ Quad make_quad(const RopeParams& p, int32_t quad) {
  const int32_t pair = 2 * quad;
  const bool rotated = pair < p.rotary_size / 2;
  if (rotated && p.halves) return {{pair, pair + p.rotary_size / 2}, true, true};
  return {{2 * pair, 2 * pair + 2}, false, rotated};
}

__device__ float2 rotate(float2 pair, float cosine, float sine) {
  return {pair.x * cosine - pair.y * sine, pair.y * cosine + pair.x * sine};
}

/// Exchanges (a.x a.y) (b.x b.y) and (a.x b.x) (a.y b.y).
__device__ void transpose(float2& a, float2& b) {
  const float kept = a.y;
  a.y = b.x;
  b.x = kept;
}

template <class T>
__device__ void store(T* head, const Quad& quad, float2 first, float2 second) {
  store_pair(head + quad.at[0], first);
  store_pair(head + quad.at[1], second);
}

/// A head of a token: of q, k or v.
struct HeadRow {
  int32_t row;
  bool is_q, is_v;
  bool in_range;

  __device__ HeadRow(const RopeParams& p, int32_t row)
      : row(row), is_q(row < p.heads), is_v(row >= p.heads + p.cache.kv_heads), in_range(row < p.rows) {}
  /// The head in qkv from which it is computed.
  __device__ int32_t source(const RopeParams& p) const {
    if (is_q) return p.q_has_gate ? 2 * row : row;
    const int32_t behind_q = p.q_has_gate ? row + p.heads : row;
    return is_v && p.v_is_k ? behind_q - p.cache.kv_heads : behind_q;
  }
  __device__ const float* norm(const RopeParams& p) const {
    if (is_v) return p.v_norm;
    const float* first = is_q ? p.q_norm : p.k_norm;
    return first == nullptr || !p.layer_norms ? first : first + (is_q ? row : row - p.heads) * p.head_size;
  }
};

/// The elements of a head in a lane.
template <int kQuads>
struct LaneQuads {
  float2 first[kQuads], second[kQuads];

  __device__ void load(const RopeParams& p, const Quad (&quads)[kQuads], const float* head, int32_t lane) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      first[i] = second[i] = {};
      if (4 * (lane + 32 * i) >= p.head_size) continue;
      first[i] = load_pair(head + quads[i].at[0]);
      second[i] = load_pair(head + quads[i].at[1]);
    }
  }
  __device__ void subtract_mean(const RopeParams& p, int32_t lane) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      sum += first[i].x + first[i].y + second[i].x + second[i].y;
    const float mean = warp_sum(sum) / static_cast<float>(p.head_size);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (4 * (lane + 32 * i) >= p.head_size) continue;  // they stay 0
      first[i] = {first[i].x - mean, first[i].y - mean};
      second[i] = {second[i].x - mean, second[i].y - mean};
    }
  }
  __device__ void normalise(const RopeParams& p, const Quad (&quads)[kQuads], const float* norm,
                            int32_t lane) {
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      squares += first[i].x * first[i].x + first[i].y * first[i].y + second[i].x * second[i].x +
                 second[i].y * second[i].y;
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p.head_size) + p.norm_eps);
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (4 * (lane + 32 * i) >= p.head_size) continue;
      const float2 a = load_pair(norm + quads[i].at[0]), b = load_pair(norm + quads[i].at[1]);
      first[i] = {first[i].x * inverse * a.x, first[i].y * inverse * a.y};
      second[i] = {second[i].x * inverse * b.x, second[i].y * inverse * b.y};
    }
  }
  __device__ void turn(const Quad (&quads)[kQuads], const float4 (&angle)[kQuads]) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (quads[i].split) transpose(first[i], second[i]);
      first[i] = rotate(first[i], angle[i].x, angle[i].y);
      second[i] = rotate(second[i], angle[i].z, angle[i].w);
      if (quads[i].split) transpose(first[i], second[i]);
    }
  }
  __device__ void scale(float factor) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      first[i] = {first[i].x * factor, first[i].y * factor};
      second[i] = {second[i].x * factor, second[i].y * factor};
    }
  }
  template <class T>
  __device__ void store_to(T* head, const RopeParams& p, const Quad (&quads)[kQuads], int32_t lane) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i)
      if (4 * (lane + 32 * i) < p.head_size) store(head, quads[i], first[i], second[i]);
  }
};

template <class Q, class Kv, int kQuads, int kRows>
__global__ __launch_bounds__(kWarps * 32) void rope_kv_write_kernel(RopeParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  allow_next_kernel();
  const int32_t token = static_cast<int32_t>(blockIdx.x);
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % 32;
  const int32_t first_row =
      (static_cast<int32_t>(blockIdx.y) * kWarps + static_cast<int32_t>(threadIdx.x) / 32) * kRows;
  const int32_t slot = p.slots[token];
  const float* angles = p.cos_sin + int64_t{p.positions[token]} * p.rotary_size;

  Quad quads[kQuads];
  float4 angle[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    quads[i] = make_quad(p, lane + 32 * i);
    angle[i] = {1.0f, 0.0f, 1.0f, 0.0f};
    if (quads[i].rotated) angle[i] = *reinterpret_cast<const float4*>(angles + 4 * (lane + 32 * i));
  }
  begin_kernel(stamps);

  LaneQuads<kQuads> heads[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const HeadRow head(p, first_row + r);
    if (head.in_range)
      heads[r].load(p, quads, p.qkv + token * p.stride + int64_t{head.source(p)} * p.head_size, lane);
  }
  const BlockOffset place = block_offset(p.cache, max(slot, 0));
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const HeadRow head(p, first_row + r);
    if (!head.in_range || (!head.is_q && slot < 0)) continue;
    const int32_t kv_head = (head.row - p.heads) % p.cache.kv_heads;
    const int64_t cache_element = kv_row(p.cache, place.block, kv_head, place.offset) * p.head_size;
    if (p.norms_last && !head.is_v) heads[r].turn(quads, angle);
    if (head.norm(p) != nullptr && p.layer_norms && !head.is_v) heads[r].subtract_mean(p, lane);
    if (head.norm(p) != nullptr) heads[r].normalise(p, quads, head.norm(p), lane);
    if (!p.norms_last && !head.is_v) heads[r].turn(quads, angle);
    if (head.is_q) {
      if (p.q_scale != nullptr) heads[r].scale(p.q_scale[p.positions[token]]);
      heads[r].store_to(static_cast<Q*>(p.q_out) + token * p.q_stride + int64_t{head.row} * p.head_size, p,
                        quads, lane);
    } else {
      heads[r].store_to(static_cast<Kv*>(head.is_v ? p.v : p.k) + cache_element, p, quads, lane);
    }
  }
}

void check(const ForwardBatch& batch, const RopeKvWriteArgs& args) {
  const int32_t head_size = args.kv.head_size;
  require_equal("rope_kv_write: rows of qkv", batch.num_tokens, args.qkv.rows);
  if (args.kv.value_size() != head_size || (args.kv.v_in_k && args.v_is_k)) {
    unsupported("rope_kv_write", "values of the head size, " + std::to_string(head_size),
                std::to_string(args.kv.value_size()));
  }
  if (args.q_has_gate && args.q_out.data == nullptr)
    unsupported("rope_kv_write", "a q_out for heads of q with gates", "q in place");
  require_equal("rope_kv_write: columns of qkv",
                int64_t{(args.q_has_gate ? 2 : 1) * args.heads +
                        (args.v_is_k || args.kv.v_in_k ? 1 : 2) * args.kv.kv_heads} *
                    head_size,
                args.qkv.cols);
  if (head_size <= 0 || head_size % kHeadSizeMultiple != 0 || head_size > kMaxHeadSize) {
    unsupported("rope_kv_write", "a head size that is a multiple of 4 up to " + std::to_string(kMaxHeadSize),
                std::to_string(head_size));
  }
  if (args.rotary_size < 0 || args.rotary_size % kHeadSizeMultiple != 0 || args.rotary_size > head_size) {
    unsupported("rope_kv_write", "a rotary size that is a multiple of 4 up to the head size",
                std::to_string(args.rotary_size));
  }
  if (args.qkv.dtype != DType::f32) unsupported("rope_kv_write", "qkv of f32", name(args.qkv.dtype));
  if (args.q_out.data != nullptr) {
    require_equal("rope_kv_write: rows of q_out", batch.num_tokens, args.q_out.rows);
    require_equal("rope_kv_write: columns of q_out", int64_t{args.heads} * head_size, args.q_out.cols);
  }
  for (const int64_t stride : {args.qkv.stride, args.q_out.stride}) {
    if (stride % 2 != 0) {
      unsupported("rope_kv_write", "rows an even number of elements apart", std::to_string(stride));
    }
  }
  if (args.q_norm) require_equal("rope_kv_write: columns of q_norm", head_size, args.q_norm.cols);
  if (args.k_norm) require_equal("rope_kv_write: columns of k_norm", head_size, args.k_norm.cols);
  const int64_t q_norms = args.layer_norms ? args.heads : 1,
                k_norms = args.layer_norms ? args.kv.kv_heads : 1;
  if (args.q_norm) require_equal("rope_kv_write: rows of q_norm", q_norms, args.q_norm.rows);
  if (args.k_norm) require_equal("rope_kv_write: rows of k_norm", k_norms, args.k_norm.rows);
  if (args.v_norm) require_equal("rope_kv_write: columns of v_norm", head_size, args.v_norm.cols);
}

template <class Q, class Kv>
void launch_kernel(Launch& launch, const ForwardBatch& batch, const RopeKvWriteArgs& args) {
  const Tensor& q_out = args.q_out.data != nullptr ? args.q_out : args.qkv;
  const RopeParams params{.qkv = args.qkv.f32(),
                          .stride = args.qkv.stride,
                          .q_out = q_out.data,
                          .q_stride = q_out.stride,
                          .positions = batch.positions,
                          .slots = batch.slots,
                          .cos_sin = args.cos_sin,
                          .q_norm = static_cast<const float*>(args.q_norm.data),
                          .k_norm = static_cast<const float*>(args.k_norm.data),
                          .v_norm = static_cast<const float*>(args.v_norm.data),
                          .layer_norms = args.layer_norms,
                          .v_is_k = args.v_is_k,
                          .q_has_gate = args.q_has_gate,
                          .norms_last = args.norms_last,
                          .rows = args.heads + (args.kv.v_in_k ? 1 : 2) * args.kv.kv_heads,
                          .norm_eps = args.norm_eps,
                          .q_scale = args.q_scale,
                          .heads = args.heads,
                          .head_size = args.kv.head_size,
                          .rotary_size = args.rotary_size,
                          .halves = args.pairing == RopePairing::halves,
                          .cache = make_kv_slots(args.kv),
                          .k = args.kv.k,
                          .v = args.kv.v};
  const auto rows = static_cast<unsigned>(params.rows);
  const auto run = [&]<int kQuads, int kRows>() {
    const dim3 grid(static_cast<unsigned>(batch.num_tokens), (rows + kWarps * kRows - 1) / (kWarps * kRows));
    launch("rope_kv_write", rope_kv_write_kernel<Q, Kv, kQuads, kRows>, grid, dim3(kWarps * 32), 0, params);
  };
  if (args.kv.head_size > kMostOfFew) return run.template operator()<kManyQuads, 1>();
  if (batch.num_tokens < kManyTokens) return run.template operator()<kFewQuads, 1>();
  run.template operator()<kFewQuads, kRowsOfMany>();
}

}  // namespace

void rope_kv_write(Launch& launch, const ForwardBatch& batch, const RopeKvWriteArgs& args) {
  check(batch, args);
  if (batch.num_tokens == 0) return;
  const DType q = args.q_out.data == nullptr ? DType::f32 : args.q_out.dtype;
  for_elements({"rope_kv_write: q_out", q}, {"rope_kv_write: KV cache", args.kv.dtype},
               [&]<class Q, class Kv>() { launch_kernel<Q, Kv>(launch, batch, args); });
}

}  // namespace minfer::cuda
