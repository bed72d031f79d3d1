#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/weights/weight_elements.cuh"
#include "kernels/dtype.h"

// Gathers rows of a table.
//
// embed: out[t, :] = scale * table[token_ids[t] - first_token, :]; table [vocabulary, hidden] in any device layout, or a rank's rows of it;
// tokens outside these rows give zeros; out [tokens, hidden] f32 or bf16. gather_rows: out[i, :] = x[rows[i], :], both f32 or both bf16.
// spread_columns: see SpreadColumnsArgs; `columns` is read before the kernel in front has ended.
//
// Blocks (x: token, y: 1,024 columns), 256 threads of four columns each. A step moves a few KB a token: only
// latency counts.
namespace minfer::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColsPerThread = 4;

template <class Out>
__device__ void store_values(Out* out, int64_t count, float4 values) {
  const float v[4] = {values.x, values.y, values.z, values.w};
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i) {
    if (i < count) out[i] = from_f32<Out>(v[i]);
  }
}

template <DType type, class Out>
__global__ void embed_kernel(const int32_t* token_ids, int32_t first_token, const void* table, int64_t rows,
                             int64_t cols, float scale, Out* out, int64_t out_stride, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();  // behind begin_kernel(): the following kernels find the step's inputs complete
  const int64_t col = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColsPerThread;
  if (col >= cols) return;
  const int64_t row = token_ids[blockIdx.x] - first_token;
  const bool has_row = row >= 0 && row < rows;
  const float4 v = has_row ? weight_values<type>(table, cols, row, col) : float4{};
  store_values(out + blockIdx.x * out_stride + col, cols - col,
               make_float4(scale * v.x, scale * v.y, scale * v.z, scale * v.w));
}

template <class Element>
__global__ void gather_rows_kernel(const Element* x, int64_t x_stride, const int32_t* rows, int64_t cols,
                                   Element* out, int64_t out_stride, Stamp stamp) {
  allow_next_kernel();
  begin_kernel(stamp);
  const int64_t first = (static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x) * kColsPerThread;
  const Element* from = x + rows[blockIdx.x] * x_stride;
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i) {
    if (first + i < cols) out[blockIdx.x * out_stride + first + i] = from[first + i];
  }
}

__global__ void spread_columns_kernel(const float* x, int64_t x_stride, const float* columns, int64_t cols,
                                      float* out, int64_t out_stride, Stamp stamp) {
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kThreads * kColsPerThread + threadIdx.x;
  int32_t column[kColsPerThread] = {};
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i) {
    if (first + i * kThreads < cols) column[i] = static_cast<int32_t>(columns[first + i * kThreads]);
  }
  allow_next_kernel();
  begin_kernel(stamp);
  const float* from = x + blockIdx.x * x_stride;
  float* to = out + blockIdx.x * out_stride + first;
#pragma unroll
  for (int i = 0; i < kColsPerThread; ++i) {
    if (first + i * kThreads < cols) to[i * kThreads] = column[i] < 0 ? -INFINITY : from[column[i]];
  }
}

dim3 grid_of(const Tensor& out) {
  constexpr int64_t kColsPerBlock = kThreads * kColsPerThread;
  return {static_cast<unsigned>(out.rows),
          static_cast<unsigned>((out.cols + kColsPerBlock - 1) / kColsPerBlock)};
}

}  // namespace

void embed(Launch& launch, const EmbedArgs& args) {
  const Weight& table = args.table;
  const Tensor& out = args.out;
  require_equal("embed: columns of the output", table.cols, out.cols);
  if (out.rows == 0) return;
  for_type(DeviceTypes{}, "embed", table.dtype, [&](auto type) {
    if (out.dtype == DType::f32) {
      launch("embed", embed_kernel<type, float>, grid_of(out), kThreads, 0, args.token_ids, args.first_token,
             table.data, table.rows, table.cols, args.scale, static_cast<float*>(out.data), out.stride);
    } else if (out.dtype == DType::bf16) {
      launch("embed", embed_kernel<type, __nv_bfloat16>, grid_of(out), kThreads, 0, args.token_ids,
             args.first_token, table.data, table.rows, table.cols, args.scale,
             static_cast<__nv_bfloat16*>(out.data), out.stride);
    } else {
      unsupported("embed", "an output of f32 or bf16", name(out.dtype));
    }
  });
}

void gather_rows(Launch& launch, const Tensor& x, const int32_t* rows, const Tensor& out) {
  require_equal("gather_rows: columns of the output", x.cols, out.cols);
  if (out.rows == 0) return;
  if (x.dtype == DType::f32 && out.dtype == DType::f32) {
    launch("gather_rows", gather_rows_kernel<float>, grid_of(out), kThreads, 0,
           static_cast<const float*>(x.data), x.stride, rows, x.cols, static_cast<float*>(out.data),
           out.stride);
  } else if (x.dtype == DType::bf16 && out.dtype == DType::bf16) {
    launch("gather_rows", gather_rows_kernel<__nv_bfloat16>, grid_of(out), kThreads, 0,
           static_cast<const __nv_bfloat16*>(x.data), x.stride, rows, x.cols,
           static_cast<__nv_bfloat16*>(out.data), out.stride);
  } else {
    unsupported("gather_rows", "x and out both f32 or both bf16", name(x.dtype));
  }
}

void spread_columns(Launch& launch, const SpreadColumnsArgs& args) {
  const auto& [x, columns, out] = args;
  require_equal("spread_columns: columns of the output", columns.cols, out.cols);
  if (x.dtype != DType::f32 || out.dtype != DType::f32 || columns.dtype != DType::f32)
    unsupported("spread_columns", "x, columns and out of f32", name(x.dtype));
  if (out.rows == 0) return;
  launch("spread_columns", spread_columns_kernel, grid_of(out), kThreads, 0, x.f32(), x.stride,
         static_cast<const float*>(columns.data), out.cols, out.f32(), out.stride);
}

}  // namespace minfer::cuda
