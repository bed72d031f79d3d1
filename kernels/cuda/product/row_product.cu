#include <algorithm>

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/product/row_product.h"
#include "kernels/dtype.h"

// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n] in f32.
//
// W [N, K] f32 or f16, row-major; x [tokens, K] f32 or bf16; out [tokens, N] f32 or bf16.
//
// Blocks (x: eight rows, y: kTokens tokens), a warp a row: lanes read 16 bytes of it each, four such reads
// ahead of the products. Weights are read once for kTokens tokens, x from the caches. Where K or an address
// is no multiple of a vector, an element at a time.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 8;
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

template <int kVector, int kTokens, class W, class X, class Out>
__global__ void __launch_bounds__(kWarps * 32) row_product_kernel(Args<W, X, Out> args, Stamp stamp) {
  using WVector = Vector<W, kVector>;
  using XVector = Vector<X, kVector>;
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const int64_t first_token = static_cast<int64_t>(blockIdx.y) * kTokens;
  allow_next_kernel();
  begin_kernel(stamp);
  if (row >= args.rows) return;
  const W* weights = args.weight + row * args.cols;
  float sums[kTokens] = {};
  constexpr int kStep = 32 * kVector;
  for (int64_t first = lane * kVector; first < args.cols; first += kAhead * kStep) {
    WVector w[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kStep;
      w[i] = k < args.cols ? *reinterpret_cast<const WVector*>(weights + k) : WVector{};
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int64_t k = first + i * kStep;
      if (k >= args.cols) break;
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const int64_t token = min(first_token + t, args.tokens - 1);
        const XVector x = *reinterpret_cast<const XVector*>(args.x + token * args.x_stride + k);
#pragma unroll
        for (int j = 0; j < kVector; ++j)
          sums[t] = fmaf(to_f32(w[i].values[j]), to_f32(x.values[j]), sums[t]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
    sums[t] = warp_sum(sums[t]);
    if (lane != 0 || first_token + t >= args.tokens) continue;
    Out& out = args.out[(first_token + t) * args.out_stride + row];
    const float value = args.bias == nullptr ? sums[t] : sums[t] + args.bias[row];
    out = from_f32<Out>(args.add_to_out ? to_f32(out) + value : value);
  }
}

template <int kVector, int kTokens, class W, class X, class Out>
void launch_tokens(Launch& launch, const Args<W, X, Out>& args) {
  constexpr int64_t kMostTokens = kMaxGridY * kTokens;
  for (int64_t token = 0; token < args.tokens; token += kMostTokens) {
    Args<W, X, Out> some = args;
    some.x += token * args.x_stride;
    some.out += token * args.out_stride;
    some.tokens = std::min(args.tokens - token, kMostTokens);
    const dim3 grid(static_cast<unsigned>((args.rows + kWarps - 1) / kWarps),
                    static_cast<unsigned>((some.tokens + kTokens - 1) / kTokens));
    launch("row_product", row_product_kernel<kVector, kTokens, W, X, Out>, grid, kWarps * 32, 0, some);
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
    launch_tokens<1, 4>(launch, args);
  } else if (p.x.rows == 1) {
    launch_tokens<kVector, 1>(launch, args);
  } else {
    launch_tokens<kVector, 4>(launch, args);
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
