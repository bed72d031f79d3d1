// The writes of latent attention before it attends: the row of the cache, and the rotated elements of its queries.
//
//   k[slot] = [latent / sqrt(mean(latent^2) + eps) * weight | rotated key]
//   q_out[t, h, latent ...] = rotated q[t, h, last rotary_size]                 as rope.cu rotates
//   neither is rotated without angles (Kimi Linear)
//   q = q_scale[position] q                                                     first, if there are such scales (Mistral 4)
//
//   q         [tokens, heads * (any + rotary_size)] f32, rows `q_stride` apart
//   kv        [tokens, latent + rotary_size] f32, rows `kv_stride` apart
//   q_out     [tokens, heads * (latent + rotary_size)] bf16 or f32, rows `out_stride` apart
//   k         [num_blocks, block_size, latent + rotary_size] f32, f16, bf16 or fp8 e4m3 (saturating)
//
// A token's first block takes its row of kv, the others kWarps heads of q each: grid (tokens, 1 + heads / kWarps). A thread loads its part
// of the row at once, up to kAtOnce elements, and keeps it (one warp alone, with four at a time, took 8 us for one token on an H200).
// Bytes: kv and the rotated elements of q are read once, these and the cache's row are written once. Positions, slots, angles and the norm
// belong to the step's inputs or the model and are read before begin_kernel(). A token with a negative slot is padding: its row is dropped.
#include <string>

#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/ptx/vector_io.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/element_types.h"

namespace minfer::cuda {
namespace {

constexpr int kLatentWarps = 4;
constexpr int kLatentThreads = kLatentWarps * kWarpSize;
constexpr int kAtOnce = 4;  ///< all of a row of up to 512 elements

struct LatentKvParams {
  float* q;
  int64_t q_stride;
  int32_t q_size;  ///< elements of a head of q
  const float* kv;
  int64_t kv_stride;
  void* q_out;
  int64_t out_stride;
  const int32_t* positions;
  const int32_t* slots;
  const float* cos_sin;
  const float* q_scale;
  const float* norm;
  float norm_eps;
  int32_t heads;
  int32_t latent_size;
  int32_t rotary_size;
  bool halves;  ///< RopePairing::halves
  void* k;

  __device__ int32_t row_size() const { return latent_size + rotary_size; }
};

/// to[...] = scale times rotated from[...], not rotated without angles; a lane takes one pair at a time.
template <class T>
__device__ void rotate_row(const LatentKvParams& p, const float* from, const float* angles, T* to,
                           float scale = 1.0f) {
  const int32_t pairs = p.rotary_size / 2;
  for (int32_t pair = static_cast<int32_t>(threadIdx.x) % kWarpSize; pair < pairs; pair += kWarpSize) {
    const int32_t a = p.halves ? pair : 2 * pair;
    const int32_t b = p.halves ? pair + pairs : 2 * pair + 1;
    const float cosine = angles == nullptr ? 1.0f : angles[2 * pair];
    const float sine = angles == nullptr ? 0.0f : angles[2 * pair + 1];
    const float x = scale * from[a], y = scale * from[b];
    to[a] = from_f32<T>(x * cosine - y * sine);
    to[b] = from_f32<T>(y * cosine + x * sine);
  }
}

/// Elements threadIdx.x + i kLatentThreads of `from`, i < kAtOnce.
struct RowPart {
  float values[kAtOnce];

  __device__ __forceinline__ RowPart(const float* from, int32_t size) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t at = static_cast<int32_t>(threadIdx.x) + i * kLatentThreads;
      values[i] = at < size ? from[at] : 0.0f;
    }
  }
};

/// Writes a row. A block calls it. `norm`: the weights of the first elements.
template <class Kv>
__device__ void write_row(const LatentKvParams& p, const RowPart& norm, int32_t token, int32_t slot,
                          const float* angles) {
  __shared__ float warp_squares[kLatentWarps];
  constexpr int32_t kPart = kAtOnce * kLatentThreads;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const float* from = p.kv + token * p.kv_stride;
  Kv* to = static_cast<Kv*>(p.k) + int64_t{slot} * p.row_size();
  const RowPart first(from, p.latent_size);
  float squares = 0.0f;
#pragma unroll
  for (const float value : first.values)
    squares += value * value;
  for (int32_t i = kPart + thread; i < p.latent_size; i += kLatentThreads)
    squares += from[i] * from[i];
  squares = warp_sum(squares);
  if (thread % kWarpSize == 0) warp_squares[thread / kWarpSize] = squares;
  if (thread < kWarpSize) rotate_row(p, from + p.latent_size, angles, to + p.latent_size);
  __syncthreads();
  float sum = 0.0f;
#pragma unroll
  for (const float part : warp_squares)
    sum += part;
  const float inverse = 1.0f / sqrtf(sum / static_cast<float>(p.latent_size) + p.norm_eps);
#pragma unroll
  for (int i = 0; i < kAtOnce; ++i) {
    const int32_t at = thread + i * kLatentThreads;
    if (at < p.latent_size) to[at] = from_f32<Kv>(first.values[i] * inverse * norm.values[i]);
  }
  for (int32_t i = kPart + thread; i < p.latent_size; i += kLatentThreads)
    to[i] = from_f32<Kv>(from[i] * inverse * p.norm[i]);
}

template <class Q, class Kv>
__global__ __launch_bounds__(kLatentThreads) void latent_kv_kernel(LatentKvParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  allow_next_kernel();
  const auto token = static_cast<int32_t>(blockIdx.x);
  const int32_t slot = p.slots[token];
  const float* angles =
      p.cos_sin == nullptr ? nullptr : p.cos_sin + int64_t{p.positions[token]} * p.rotary_size;
  const float scale = p.q_scale == nullptr ? 1.0f : p.q_scale[p.positions[token]];
  if (blockIdx.y == 0) {
    const RowPart norm(p.norm, p.latent_size);
    begin_kernel(stamps);
    if (slot >= 0) write_row<Kv>(p, norm, token, slot, angles);
    return;
  }
  begin_kernel(stamps);
  const int32_t head =
      (static_cast<int32_t>(blockIdx.y) - 1) * kLatentWarps + static_cast<int32_t>(threadIdx.x) / kWarpSize;
  if (head >= p.heads) return;
  float* q = p.q + token * p.q_stride + int64_t{head} * p.q_size;
  const int32_t others = p.q_size - p.rotary_size;
  rotate_row(p, q + others, angles,
             static_cast<Q*>(p.q_out) + token * p.out_stride + int64_t{head} * p.row_size() + p.latent_size,
             scale);
  if (p.q_scale == nullptr) return;
  for (int32_t i = static_cast<int32_t>(threadIdx.x) % kWarpSize; i < others; i += kWarpSize)
    q[i] *= scale;
}

void check(const ForwardBatch& batch, const LatentKvWriteArgs& args) {
  const KvLayer& kv = args.kv_layer;
  if (!kv.v_in_k || kv.kv_heads != 1 || kv.value_size() + args.rotary_size != kv.head_size) {
    unsupported("latent_kv_write", "one KV head of a value and the rotated elements behind it",
                std::to_string(kv.kv_heads) + " of " + std::to_string(kv.head_size) + ", values of " +
                    std::to_string(kv.value_size()));
  }
  if (args.rotary_size < 2 || args.rotary_size % 2 != 0 || args.heads < 1 || args.q.cols % args.heads != 0 ||
      args.q.cols / args.heads < args.rotary_size) {
    unsupported("latent_kv_write", "an even number of rotated elements in each head of q",
                std::to_string(args.rotary_size) + " in " + std::to_string(args.q.cols) + " columns of " +
                    std::to_string(args.heads) + " heads");
  }
  require_equal("latent_kv_write: rows of q", batch.num_tokens, args.q.rows);
  require_equal("latent_kv_write: rows of kv", batch.num_tokens, args.kv.rows);
  require_equal("latent_kv_write: columns of kv", kv.head_size, args.kv.cols);
  require_equal("latent_kv_write: rows of q_out", batch.num_tokens, args.q_out.rows);
  require_equal("latent_kv_write: columns of q_out", int64_t{args.heads} * kv.head_size, args.q_out.cols);
  require_equal("latent_kv_write: columns of kv_norm", kv.value_size(), args.kv_norm.cols);
  for (const DType dtype : {args.q.dtype, args.kv.dtype, args.kv_norm.dtype}) {
    if (dtype != DType::f32) unsupported("latent_kv_write", "q, kv and kv_norm of f32", name(dtype));
  }
}

template <class Q, class Kv>
void launch_latent(Launch& launch, const ForwardBatch& batch, const LatentKvWriteArgs& args) {
  const LatentKvParams params{.q = args.q.f32(),
                              .q_stride = args.q.stride,
                              .q_size = static_cast<int32_t>(args.q.cols / args.heads),
                              .kv = args.kv.f32(),
                              .kv_stride = args.kv.stride,
                              .q_out = args.q_out.data,
                              .out_stride = args.q_out.stride,
                              .positions = batch.positions,
                              .slots = batch.slots,
                              .cos_sin = args.cos_sin,
                              .q_scale = args.q_scale,
                              .norm = static_cast<const float*>(args.kv_norm.data),
                              .norm_eps = args.norm_eps,
                              .heads = args.heads,
                              .latent_size = args.kv_layer.value_size(),
                              .rotary_size = args.rotary_size,
                              .halves = args.pairing == RopePairing::halves,
                              .k = args.kv_layer.k};
  const auto heads = static_cast<unsigned>(args.heads);
  const dim3 grid(static_cast<unsigned>(batch.num_tokens), 1 + (heads + kLatentWarps - 1) / kLatentWarps);
  launch("latent_kv_write", latent_kv_kernel<Q, Kv>, grid, dim3(kLatentThreads), 0, params);
}

}  // namespace

void latent_kv_write(Launch& launch, const ForwardBatch& batch, const LatentKvWriteArgs& args) {
  check(batch, args);
  if (batch.num_tokens == 0) return;
  for_elements({"latent_kv_write: q_out", args.q_out.dtype},
               {"latent_kv_write: KV cache", args.kv_layer.dtype},
               [&]<class Q, class Kv>() { launch_latent<Q, Kv>(launch, batch, args); });
}

}  // namespace minfer::cuda
