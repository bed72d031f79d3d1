#include <algorithm>

#include "kernels/cuda/moe/routes/moe_routes.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// Products of experts with the routes of few tokens, each route alone (MoeProduct): weights and x bf16, sums f32.
///
///   gate and up:  out[route] = activation(Wg[e] x + bg[e], Wu[e] x + bu[e])     a warp has 4 rows of each
///   down:         out[t] (+)= sum over j of w[t, j] * (W[e_j] x[t, j] + b[e_j])   a block has 16 rows, for all experts of the token
///
/// With so few routes only the weights' way from memory limits the speed. A warp loads 16 x 512 bytes at a time,
/// and the 16 warps of a multiprocessor keep memory busy while others add up. For down, a warp has 8 rows of an
/// expert, or a part of their columns if a token has too few experts for all warps; the experts' weights and
/// biases come after the sums. Only the experts have to be known first, so nothing is loaded before begin_kernel().
///
/// Bytes: the weights of each route's expert.
namespace minfer::cuda {
namespace {

constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kRows = 8;  ///< of a warp
constexpr int kGateRows = kRows / 2;
constexpr int kLaneCols = 8;
constexpr int kStepCols = kLaneCols * kWarpSize;
constexpr int kSteps = 2;  ///< in flight at a time
constexpr int kDownRows = 2 * kRows;

__device__ __forceinline__ float dot(const uint4& w, const uint4& x, float sum) {
  const auto add = [&](uint32_t a, uint32_t b) {
    sum = fmaf(__uint_as_float(a << 16), __uint_as_float(b << 16), sum);
    sum = fmaf(__uint_as_float(a & 0xffff0000u), __uint_as_float(b & 0xffff0000u), sum);
  };
  add(w.x, x.x), add(w.y, x.y), add(w.z, x.z), add(w.w, x.w);
  return sum;
}

/// Columns [begin, end) of kRows rows times x, summed over the warp. All four lanes of row lane / 4 get its sum.
__device__ __forceinline__ float row_product(const __nv_bfloat16* const (&rows)[kRows],
                                             const __nv_bfloat16* x, int begin, int end, int lane) {
  float sums[kRows] = {};
  for (int first = begin + kLaneCols * lane; first < end; first += kSteps * kStepCols) {
    uint4 weights[kSteps][kRows], values[kSteps];
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
      const int k = first + i * kStepCols;
      values[i] = k < end ? *reinterpret_cast<const uint4*>(x + k) : uint4{};
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        weights[i][r] = k < end ? __ldcs(reinterpret_cast<const uint4*>(rows[r] + k)) : uint4{};
    }
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        sums[r] = dot(weights[i][r], values[i], sums[r]);
    }
  }
  // Each time lanes hand half of their sums to another lane, until each lane has one row.
#pragma unroll
  for (int half = kRows / 2, distance = kWarpSize / 2; half > 0; half /= 2, distance /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float other = __shfl_xor_sync(kWholeWarp, upper ? sums[i] : sums[i + half], distance);
      sums[i] = (upper ? sums[i + half] : sums[i]) + other;
    }
  }
  sums[0] += __shfl_xor_sync(kWholeWarp, sums[0], 2);
  return sums[0] + __shfl_xor_sync(kWholeWarp, sums[0], 1);
}

__device__ __forceinline__ const __nv_bfloat16* row_at(const MoeProduct& p, const void* matrices,
                                                       int32_t expert, int row) {
  const auto* matrix =
      reinterpret_cast<const __nv_bfloat16*>(static_cast<const char*>(matrices) + expert * p.matrix_bytes);
  return matrix + static_cast<int64_t>(min(row, p.rows - 1)) * p.cols;
}

__global__ void __launch_bounds__(kThreads, 1)
    moe_bf16_gate_up_kernel(const __grid_constant__ MoeProduct p, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int groups = (p.rows + kGateRows - 1) / kGateRows;
  // Consecutive units go to different multiprocessors, so that two multiprocessors differ by at most one unit.
  for (auto unit = static_cast<int>(threadIdx.x / kWarpSize * gridDim.x + blockIdx.x);
       unit < p.num_routes * groups; unit += static_cast<int>(kWarps * gridDim.x)) {
    const int32_t route = unit / groups;
    const int first_row = (unit - route * groups) * kGateRows;
    const int32_t expert = p.expert_ids[route];
    const __nv_bfloat16* rows[kRows];
#pragma unroll
    for (int r = 0; r < kGateRows; ++r) {
      rows[r] = row_at(p, p.weight, expert, first_row + r);
      rows[kGateRows + r] = row_at(p, p.up, expert, first_row + r);
    }
    const auto* x = static_cast<const __nv_bfloat16*>(p.x) + route / p.routes_per_x * p.x_stride;
    const float gate = row_product(rows, x, 0, p.cols, lane);
    const float up = __shfl_down_sync(kWholeWarp, gate, kWarpSize / 2);
    const int row = first_row + lane / 4;
    if (lane < kWarpSize / 2 && lane % 4 == 0 && row < p.rows)
      store_route(p, route, row, gated<false>(p, route, expert, row, gate, up));
  }
}

/// `parts`: parts of an expert's columns.
__global__ void __launch_bounds__(kThreads, 1)
    moe_bf16_down_kernel(const __grid_constant__ MoeProduct p, int parts, Stamp stamp) {
  extern __shared__ float sums[];  // [experts of the token][2][parts][kRows]
  begin_kernel(stamp);
  allow_next_kernel();
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize,
            lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const auto token = static_cast<int32_t>(blockIdx.y);
  const int first_row = static_cast<int>(blockIdx.x) * kDownRows;
  const int32_t first_route = token * p.routes_per_out;
  const int part_cols = (p.cols + parts * kLaneCols - 1) / (parts * kLaneCols) * kLaneCols;
  for (int item = warp; item < 2 * parts * p.routes_per_out; item += kWarps) {
    const int part = item % parts, half = item / parts % 2;
    const int32_t route = first_route + item / (2 * parts);
    const __nv_bfloat16* rows[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      rows[r] = row_at(p, p.weight, p.expert_ids[route], first_row + kRows * half + r);
    const auto* x = static_cast<const __nv_bfloat16*>(p.x) + route / p.routes_per_x * p.x_stride;
    const float sum = row_product(rows, x, part * part_cols, min((part + 1) * part_cols, p.cols), lane);
    if (lane % 4 == 0) sums[item * kRows + lane / 4] = sum;
  }
  __syncthreads();
  const int row = first_row + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kDownRows || row >= p.rows) return;
  float total = 0.0f;
  for (int j = 0; j < p.routes_per_out; ++j) {
    const float* at =
        sums + ((2 * j + static_cast<int>(threadIdx.x) / kRows) * parts) * kRows + threadIdx.x % kRows;
    float sum = p.bias == nullptr ? 0.0f : p.bias[int64_t{p.expert_ids[first_route + j]} * p.rows + row];
    for (int part = 0; part < parts; ++part)
      sum += at[part * kRows];
    total = fmaf(p.route_weights[first_route + j], sum, total);
  }
  float* out = static_cast<float*>(p.out) + token * p.out_stride + row;
  *out = p.add_to_out ? *out + total : total;
}

}  // namespace

void moe_bf16_vector_product(Launch& launch, const MoeProduct& p) {
  if (p.up != nullptr) {
    const int64_t units = int64_t{p.num_routes} * ((p.rows + kGateRows - 1) / kGateRows);
    const int64_t blocks = std::min<int64_t>(launch.num_sms(), (units + kWarps - 1) / kWarps);
    return launch("moe_gate_up", moe_bf16_gate_up_kernel, static_cast<unsigned>(blocks), kThreads, 0, p);
  }
  const int32_t parts = std::max(1, kWarps / (2 * p.routes_per_out));
  const dim3 grid(static_cast<unsigned>((p.rows + kDownRows - 1) / kDownRows),
                  static_cast<unsigned>(p.num_routes / p.routes_per_out));
  const auto shared = static_cast<size_t>(2 * parts * kRows * p.routes_per_out) * sizeof(float);
  launch("moe_down", moe_bf16_down_kernel, grid, kThreads, shared, p, parts);
}

}  // namespace minfer::cuda
