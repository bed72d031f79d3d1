#include <algorithm>

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/product.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/dtype.h"

// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n] in f32.
//
// W [N, K] f32 or f16, row-major; x [tokens, K] f32 or bf16; out [tokens, N] f32 or bf16.
//
// Few tokens: a block takes a row and kTokens tokens. Its threads divide the columns, and the first kAhead vectors of each
// thread, mostly all of the row, are loaded before begin_kernel(). Weights are read once for kTokens tokens, x from the caches.
//
// Many bf16 tokens with f32 weights (routers of experts) use split_product.cu. If K or an address is not a
// multiple of a vector, elements are read one at a time.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kAhead = 4;
constexpr int64_t kMaxGridY = 65535;

template <class W, class X, class Out>
struct Args {
  const W* weight;
  const X* x;
  const float* bias;
  Out* out;
  int64_t rows, cols, tokens, x_stride, out_stride;
  bool add_to_out;
};

template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Vector {
  T values[kCount];
};

template <int kVector, class T>
__device__ __forceinline__ Vector<T, kVector> load_or_zero(const T* from, bool valid) {
  return valid ? *reinterpret_cast<const Vector<T, kVector>*>(from) : Vector<T, kVector>{};
}

template <int kVector, class W, class X>
__device__ __forceinline__ float dot(const Vector<W, kVector>& w, const Vector<X, kVector>& x, float sum) {
#pragma unroll
  for (int j = 0; j < kVector; ++j)
    sum = fmaf(to_f32(w.values[j]), to_f32(x.values[j]), sum);
  return sum;
}

template <class W, class X, class Out>
__device__ __forceinline__ void store_sum(const Args<W, X, Out>& args, int64_t token, int64_t row,
                                          float sum) {
  Out& out = args.out[token * args.out_stride + row];
  const float value = args.bias == nullptr ? sum : sum + args.bias[row];
  out = from_f32<Out>(args.add_to_out ? to_f32(out) + value : value);
}

template <int kVector, int kTokens, class W, class X, class Out>
__global__ void __launch_bounds__(kThreads) row_product_kernel(Args<W, X, Out> args, Stamp stamp) {
  constexpr int64_t kStep = kThreads * kVector;
  __shared__ float warp_sums[kTokens][kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t row = blockIdx.x, first_token = static_cast<int64_t>(blockIdx.y) * kTokens;
  const W* weights = args.weight + row * args.cols;
  const int64_t own = static_cast<int64_t>(threadIdx.x) * kVector;
  allow_next_kernel();
  Vector<W, kVector> w[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i)
    w[i] = load_or_zero<kVector>(weights + own + i * kStep, own + i * kStep < args.cols);
  begin_kernel(stamp);
  float sums[kTokens] = {};
  for (int64_t first = own; first < args.cols; first += kAhead * kStep) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kStep;
      if (k >= args.cols) break;
      if (first != own) w[i] = load_or_zero<kVector>(weights + k, true);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int64_t token = min(first_token + t, args.tokens - 1);
        sums[t] =
            dot<kVector>(w[i], load_or_zero<kVector>(args.x + token * args.x_stride + k, true), sums[t]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    const float sum = warp_sum(sums[t]);
    if (lane == 0) warp_sums[t][warp] = sum;
  }
  __syncthreads();
  const int t = warp;
  if (t >= kTokens || first_token + t >= args.tokens) return;
  const float sum = warp_sum(lane < kWarps ? warp_sums[t][lane] : 0.0f);
  if (lane == 0) store_sum(args, first_token + t, row, sum);
}

template <int kVector, int kTokens, class W, class X, class Out>
void launch_rows(Launch& launch, const Args<W, X, Out>& args) {
  constexpr int64_t kMostTokens = kMaxGridY * kTokens;
  const int64_t ahead = std::min<int64_t>(args.cols, kAhead * kThreads * kVector);
  for (int64_t token = 0; token < args.tokens; token += kMostTokens) {
    Args<W, X, Out> some = args;
    some.x += token * args.x_stride;
    some.out += token * args.out_stride;
    some.tokens = std::min(args.tokens - token, kMostTokens);
    const dim3 grid(static_cast<unsigned>(args.rows),
                    static_cast<unsigned>((some.tokens + kTokens - 1) / kTokens));
    launch.reads_ahead(args.rows * ahead * int64_t{sizeof(W)})(
        "row_product", row_product_kernel<kVector, kTokens, W, X, Out>, grid, kThreads, 0, some);
  }
}

template <class W, class X, class Out>
void launch_types(Launch& launch, const Product& p) {
  const Args<W, X, Out> args{.weight = static_cast<const W*>(p.weight.data),
                             .x = static_cast<const X*>(p.x.data),
                             .bias = p.bias,
                             .out = static_cast<Out*>(p.out.data),
                             .rows = p.weight.rows,
                             .cols = p.weight.cols,
                             .tokens = p.x.rows,
                             .x_stride = p.x.stride,
                             .out_stride = p.out.stride,
                             .add_to_out = p.add_to_out};
  constexpr int kVector = 16 / sizeof(W);
  const bool vectors = p.weight.cols % kVector == 0 && p.x.stride % kVector == 0 &&
                       reinterpret_cast<uintptr_t>(p.x.data) % (kVector * sizeof(X)) == 0;
  if (!vectors) {
    launch_rows<1, 4>(launch, args);
  } else if (p.x.rows == 1) {
    launch_rows<kVector, 1>(launch, args);
  } else {
    launch_rows<kVector, 4>(launch, args);
  }
}

template <class W>
void launch_weight(Launch& launch, const Product& p) {
  const bool x_f32 = p.x.dtype == DType::f32;
  const bool out_f32 = p.out.dtype == DType::f32;
  if (!x_f32 && p.x.dtype != DType::bf16) unsupported("row_product", "x f32 or bf16", name(p.x.dtype));
  if (!out_f32 && p.out.dtype != DType::bf16)
    unsupported("row_product", "out f32 or bf16", name(p.out.dtype));
  if (x_f32)
    return out_f32 ? launch_types<W, float, float>(launch, p)
                   : launch_types<W, float, __nv_bfloat16>(launch, p);
  out_f32 ? launch_types<W, __nv_bfloat16, float>(launch, p)
          : launch_types<W, __nv_bfloat16, __nv_bfloat16>(launch, p);
}

}  // namespace

void row_product(Launch& launch, const Product& p) {
  if (p.weight.dtype == DType::f32) return launch_weight<float>(launch, p);
  if (p.weight.dtype == DType::f16) return launch_weight<__half>(launch, p);
  unsupported("row_product", "weights of f32 or f16", name(p.weight.dtype));
}

}  // namespace minfer::cuda
