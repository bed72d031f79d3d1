#include <cstdint>
#include <string>
#include <type_traits>

#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/dtype.h"

// Gates of heads: out = norm(x) f(gate), head by head (HeadGateArgs has the formulas).
//
//   x      [tokens, heads * size] f32 or bf16
//   gate   [tokens, any] f32: the gates of head h begin at column h * gate_stride
//   norm   [size] f32 or null
//   out    [tokens, heads * size] f32, bf16 or fp8 (fp8_activations.h); may be x if it has x's type
//
// A warp takes a head of a token, a block kWarps of them. With a norm it reads its elements twice, the second
// time from the L1. Bytes: each tensor once. Lanes take four columns at a time if all sizes and addresses allow
// it, otherwise one. The thread that reads an element writes it, so the op may run in place.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 4;

template <class In, class Out>
struct GateParams {
  const In* x;
  int64_t stride;
  const float* gate;
  int64_t gate_row_stride;
  int64_t gate_stride;
  const float* norm;
  float norm_eps;
  Out* out;
  int64_t out_stride;
  Fp8Activations fp8;  ///< the output, if it is fp8
  int64_t num_heads;   ///< of all tokens
  int32_t heads;
  int32_t size;
  HeadGateArgs::Function function;
};

template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Elements {
  T at[kWidth];
};

template <int kWidth, class T>
__device__ __forceinline__ void load(const T* from, float (&values)[kWidth]) {
  const auto elements = *reinterpret_cast<const Elements<T, kWidth>*>(from);
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    values[i] = to_f32(elements.at[i]);
}

template <int kWidth, class T>
__device__ __forceinline__ void store(T* to, const float (&values)[kWidth]) {
  Elements<T, kWidth> elements;
#pragma unroll
  for (int i = 0; i < kWidth; ++i)
    elements.at[i] = from_f32<T>(values[i]);
  *reinterpret_cast<Elements<T, kWidth>*>(to) = elements;
}

/// value * f(gate).
__device__ __forceinline__ float gated(HeadGateArgs::Function function, float value, float gate) {
  if (function == HeadGateArgs::Function::gelu_tanh)
    return Gate<true>(GateActivation::gelu_tanh)(gate, value);
  return (function == HeadGateArgs::Function::silu ? value * gate : value) / (1.0f + expf(-gate));
}

template <class In, class Out, int kWidth>
__global__ void __launch_bounds__(kWarps* kWarpSize) head_gate_kernel(GateParams<In, Out> p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  allow_next_kernel();
  begin_kernel(stamps);
  const int64_t index = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarpSize;
  if (index >= p.num_heads) return;
  const int64_t token = index / p.heads;
  const auto head = static_cast<int32_t>(index % p.heads);
  const int32_t first = static_cast<int32_t>(threadIdx.x) % kWarpSize * kWidth;
  const In* x = p.x + token * p.stride + int64_t{head} * p.size;
  const float* gates = p.gate + token * p.gate_row_stride + head * p.gate_stride;
  float values[kWidth];
  float inverse = 1.0f;
  if (p.norm != nullptr) {
    float squares = 0.0f;
    for (int32_t c = first; c < p.size; c += kWarpSize * kWidth) {
      load(x + c, values);
#pragma unroll
      for (const float value : values)
        squares = fmaf(value, value, squares);
    }
    inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(p.size) + p.norm_eps);
  }
  for (int32_t c = first; c < p.size; c += kWarpSize * kWidth) {
    float gate[kWidth];
    load(x + c, values);
    load(gates + c, gate);
    if (p.norm != nullptr) {
      float weights[kWidth];
      load(p.norm + c, weights);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        values[i] *= inverse * weights[i];
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i)
      values[i] = gated(p.function, values[i], gate[i]);
    if constexpr (std::is_same_v<Out, __nv_fp8_e4m3>) {  // heads are whole groups of 128
      store_fp8(p.fp8, token, head * p.size + c - first,
                make_float4(values[0], values[1 % kWidth], values[2 % kWidth], values[3 % kWidth]));
    } else {
      store(p.out + token * p.out_stride + int64_t{head} * p.size + c, values);
    }
  }
}

template <class T>
bool allows_quads(const T* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % (4 * sizeof(T)) == 0 && stride % 4 == 0;
}

template <class In, class Out>
void launch_head_gate(Launch& launch, const HeadGateArgs& args) {
  const auto size = static_cast<int32_t>(args.x.cols / args.heads);
  const GateParams<In, Out> params{.x = static_cast<const In*>(args.x.data),
                                   .stride = args.x.stride,
                                   .gate = args.gate.f32(),
                                   .gate_row_stride = args.gate.stride,
                                   .gate_stride = args.gate_stride,
                                   .norm = static_cast<const float*>(args.norm.data),
                                   .norm_eps = args.norm_eps,
                                   .out = static_cast<Out*>(args.out.data),
                                   .out_stride = args.out.stride,
                                   .fp8 = fp8_activations(args.out),
                                   .num_heads = args.x.rows * args.heads,
                                   .heads = args.heads,
                                   .size = size,
                                   .function = args.function};
  const bool is_fp8 = std::is_same_v<Out, __nv_fp8_e4m3>;
  const bool takes_quads = size % 4 == 0 && allows_quads(params.x, params.stride) &&
                           allows_quads(params.gate, params.gate_row_stride) && params.gate_stride % 4 == 0 &&
                           allows_quads(params.norm, 0) &&
                           (is_fp8 || allows_quads(params.out, params.out_stride));
  const dim3 grid(static_cast<unsigned>((params.num_heads + kWarps - 1) / kWarps));
  if (takes_quads && (!is_fp8 || size % kFp8Columns == 0)) {
    return launch("head_gate", head_gate_kernel<In, Out, 4>, grid, dim3(kWarps * kWarpSize), 0, params);
  }
  if constexpr (std::is_same_v<Out, __nv_fp8_e4m3>) {
    unsupported("head_gate to fp8", "aligned heads of a multiple of 128", std::to_string(size));
  } else {
    launch("head_gate", head_gate_kernel<In, Out, 1>, grid, dim3(kWarps * kWarpSize), 0, params);
  }
}

void check(const HeadGateArgs& args) {
  if (args.heads < 1 || args.x.cols % args.heads != 0) {
    unsupported("head_gate", "columns that are a multiple of " + std::to_string(args.heads) + " heads",
                std::to_string(args.x.cols));
  }
  const int64_t size = args.x.cols / args.heads;
  const int64_t gates_end = (args.heads - 1) * args.gate_stride + size;
  require_equal("head_gate: rows of out", args.x.rows, args.out.rows);
  require_equal("head_gate: columns of out", args.x.cols, args.out.cols);
  require_equal("head_gate: rows of gate", args.x.rows, args.gate.rows);
  if (args.gate.dtype != DType::f32) unsupported("head_gate", "gates of f32", name(args.gate.dtype));
  if (args.gate.cols < gates_end) {
    unsupported("head_gate", "gates of at least " + std::to_string(gates_end) + " columns",
                std::to_string(args.gate.cols));
  }
  if (args.norm) {
    if (args.norm.dtype != DType::f32) unsupported("head_gate", "a norm of f32", name(args.norm.dtype));
    require_equal("head_gate: columns of norm", size, args.norm.cols);
  }
  if (args.out.data == args.x.data && args.out.dtype != args.x.dtype)
    unsupported("head_gate in place", "an out of x's type", name(args.out.dtype));
}

}  // namespace

void head_gate(Launch& launch, const HeadGateArgs& args) {
  check(args);
  if (args.x.rows == 0) return;
  const auto from = [&](auto element) {
    using In = decltype(element);
    if (args.out.dtype == DType::f32) return launch_head_gate<In, float>(launch, args);
    if (args.out.dtype == DType::bf16) return launch_head_gate<In, __nv_bfloat16>(launch, args);
    if (args.out.dtype == DType::fp8) return launch_head_gate<In, __nv_fp8_e4m3>(launch, args);
    unsupported("head_gate", "out of f32, bf16 or fp8", name(args.out.dtype));
  };
  if (args.x.dtype == DType::f32) return from(float{});
  if (args.x.dtype == DType::bf16) return from(__nv_bfloat16{});
  unsupported("head_gate", "x of f32 or bf16", name(args.x.dtype));
}

}  // namespace minfer::cuda
