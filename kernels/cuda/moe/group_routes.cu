#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/moe/group_routes.h"

/// group_routes: a counting sort by one block: routes of each expert are counted, a scan over the experts gives
/// where their routes and batches begin, then every route takes the next place of its expert. Places within an
/// expert depend on the order of atomics; no result does, since a route is multiplied alone.
///
/// combine_routes: a thread four columns of a token; reads used (+ 1) and writes 1 times tokens * cols * 4
/// bytes.
namespace minfer::cuda {
namespace {

constexpr int kSortThreads = kMaxExperts;
constexpr int kCombineThreads = 256;

struct Scan {
  int32_t routes;
  int32_t batches;
};

__device__ Scan operator+(Scan a, Scan b) {
  return {a.routes + b.routes, a.batches + b.batches};
}

/// The sum over the threads before this one.
__device__ Scan exclusive_scan(Scan own) {
  __shared__ Scan warp_sums[kSortThreads / kWarpSize];
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  const Scan sum{warp_sum_up_to(own.routes), warp_sum_up_to(own.batches)};
  if (lane == kWarpSize - 1) warp_sums[warp] = sum;
  __syncthreads();
  Scan before{sum.routes - own.routes, sum.batches - own.batches};
  for (int w = 0; w < warp; ++w)
    before = before + warp_sums[w];
  return before;
}

__global__ void __launch_bounds__(kSortThreads)
    group_kernel(const int32_t* expert_ids, int32_t num_routes, int32_t experts, int32_t batch_routes,
                 RouteGroups groups, Stamp stamp) {
  __shared__ int32_t places[kSortThreads];
  begin_kernel(stamp);
  allow_next_kernel();
  const auto expert = static_cast<int32_t>(threadIdx.x);
  places[expert] = 0;
  __syncthreads();
  for (int32_t route = expert; route < num_routes; route += kSortThreads)
    atomicAdd(&places[expert_ids[route]], 1);
  __syncthreads();
  const int32_t count = places[expert];
  const int32_t batches = (count + batch_routes - 1) / batch_routes;
  const Scan before = exclusive_scan({count, batches});
  places[expert] = before.routes;
  for (int32_t b = 0; b < batches; ++b) {
    const int32_t done = b * batch_routes;
    groups.batches[before.batches + b] = {expert, before.routes + done, min(batch_routes, count - done)};
  }
  if (expert == experts - 1) *groups.num_batches = before.batches + batches;
  __syncthreads();
  for (int32_t route = expert; route < num_routes; route += kSortThreads)
    groups.routes[atomicAdd(&places[expert_ids[route]], 1)] = route;
}

struct Combination {
  const float* products;
  const float* weights;
  int32_t used;
  int32_t cols;
  float* out;
  int64_t out_stride;
  bool add_to_out;
};

__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combination args, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const auto col = static_cast<int32_t>(4 * (blockIdx.x * kCombineThreads + threadIdx.x));
  const int64_t token = blockIdx.y;
  if (col >= args.cols) return;
  const float* weights = args.weights + token * args.used;
  const float* product = args.products + token * args.used * args.cols + col;
  float sums[4] = {};
  const int columns = min(4, args.cols - col);
  for (int32_t j = 0; j < args.used; ++j, product += args.cols) {
#pragma unroll
    for (int c = 0; c < 4; ++c)
      if (c < columns) sums[c] = fmaf(weights[j], product[c], sums[c]);
  }
  float* out = args.out + token * args.out_stride + col;
#pragma unroll
  for (int c = 0; c < 4; ++c)
    if (c < columns) out[c] = args.add_to_out ? out[c] + sums[c] : sums[c];
}

}  // namespace

void group_routes(Launch& launch, const int32_t* expert_ids, int32_t num_routes, int32_t experts,
                  int32_t batch_routes, const RouteGroups& groups) {
  if (experts > kMaxExperts) require_equal("experts at most", kMaxExperts, experts);
  launch("group_routes", group_kernel, 1, kSortThreads, 0, expert_ids, num_routes, experts, batch_routes,
         groups);
}

void combine_routes(Launch& launch, const float* products, const float* weights, int32_t used,
                    const Tensor& out, bool add_to_out) {
  const Combination args{products,  weights,    used,      static_cast<int32_t>(out.cols),
                         out.f32(), out.stride, add_to_out};
  const dim3 grid(static_cast<unsigned>((out.cols + 4 * kCombineThreads - 1) / (4 * kCombineThreads)),
                  static_cast<unsigned>(out.rows));
  launch("combine_routes", combine_kernel, grid, kCombineThreads, 0, args);
}

}  // namespace minfer::cuda
