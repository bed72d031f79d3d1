#include "kernels/cuda/moe/routes/group_routes.h"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// group_routes: a stable counting sort by one block, with all routes in registers. A warp has consecutive routes. Lanes with
/// the same expert find each other, and one of them counts for all in the warp's own row of counts. Sums over the warps, then
/// over the experts, give the place of a warp's routes of an expert, and the expert's batches. No order depends on timing.
///
/// gather_routes: a thread takes 16 bytes of four routes; the kernel reads routes * cols * 2 bytes from the L2
/// and writes the same number. With weights it rounds its products to bf16.
///
/// combine_routes: a thread takes four columns of a token; for each token the kernel reads used * cols * 4 (f32) or
/// 2 (bf16) bytes, and cols * 4 more if it adds, and writes cols * 4. A bias adds used * cols * 4 bytes from the L2.
namespace minfer::cuda {
namespace {

constexpr int kSortWarps = 32;
constexpr int kSortThreads = kSortWarps * kWarpSize;
constexpr int kSortSteps = kMostGroupedRoutes / kSortThreads;
constexpr int kCombineThreads = 256;
constexpr int kGatherThreads = 128;
constexpr int kGatheredTogether = 4;
static_assert(kMaxExperts <= kSortThreads && kMostGroupedRoutes <= 1 << 16);

struct Scan {
  int32_t routes;
  int32_t small;  ///< batches
  int32_t large;
};

__device__ Scan operator+(Scan a, Scan b) {
  return {a.routes + b.routes, a.small + b.small, a.large + b.large};
}

struct ScanSums {
  Scan before;  ///< the sums over the threads before this one
  Scan all;
};
__device__ ScanSums scan(Scan own) {
  __shared__ Scan warp_sums[kSortWarps];
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  const int warp = static_cast<int>(threadIdx.x / kWarpSize);
  const Scan sum{warp_sum_up_to(own.routes), warp_sum_up_to(own.small), warp_sum_up_to(own.large)};
  if (lane == kWarpSize - 1) warp_sums[warp] = sum;
  __syncthreads();
  Scan before{sum.routes - own.routes, sum.small - own.small, sum.large - own.large};
  Scan all{};
  for (int w = 0; w < kSortWarps; ++w) {
    if (w == warp) before = before + all;
    all = all + warp_sums[w];
  }
  return {before, all};
}

/// The number of the i-th large batch, or of the i-th small one.
__device__ int32_t number_in_turns(int32_t i, bool is_large, const Scan& all) {
  const int32_t turns = min(all.small, all.large);
  return i >= turns ? turns + i : 2 * i + (is_large ? 0 : 1);
}

__global__ void __launch_bounds__(kSortThreads)
    group_kernel(const int32_t* expert_ids, int32_t num_routes, int32_t experts, RouteGroups groups,
                 Stamp stamp) {
  union Shared {
    uint16_t counts[kSortWarps][kMaxExperts];  ///< of routes; then those of the warps before
    uint16_t sorted[kMostGroupedRoutes];
  };
  __shared__ Shared shared;
  __shared__ int32_t firsts[kMaxExperts];
  begin_kernel(stamp);
  allow_next_kernel();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % kWarpSize, warp = thread / kWarpSize;
  const int32_t steps = (num_routes + kSortThreads - 1) / kSortThreads;
  const int32_t first = warp * steps * kWarpSize + lane;
  uint16_t(&counts)[kMaxExperts] = shared.counts[warp];
  for (int32_t i = lane; i < kMaxExperts; i += kWarpSize)
    counts[i] = 0;
  // For each route: first its expert, then also its place among the warp's routes of that expert, then its place among all; -1: none.
  int32_t places[kSortSteps];
#pragma unroll
  for (int i = 0; i < kSortSteps; ++i) {
    const int32_t route = first + i * kWarpSize;
    places[i] = i < steps && route < num_routes ? expert_ids[route] : -1;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kSortSteps; ++i) {
    if (i >= steps) break;
    const int32_t expert = places[i];
    const uint32_t same = __match_any_sync(kWholeWarp, expert);
    const uint32_t below = same & ((1u << lane) - 1);
    const int32_t counted = expert >= 0 ? counts[expert] : 0;
    __syncwarp();
    if (expert >= 0) {
      places[i] = expert << 16 | (counted + __popc(below));
      if (below == 0) counts[expert] = static_cast<uint16_t>(counted + __popc(same));
    }
    __syncwarp();
  }
  __syncthreads();

  int32_t count = 0;
  if (thread < experts) {
#pragma unroll 8
    for (int w = 0; w < kSortWarps; ++w) {
      const int32_t of_warp = shared.counts[w][thread];
      shared.counts[w][thread] = static_cast<uint16_t>(count);
      count += of_warp;
    }
  }
  const int32_t batches = (count + groups.batch_routes - 1) / groups.batch_routes;
  const int32_t full = count / groups.batch_routes, in_last = count - (batches - 1) * groups.batch_routes;
  const auto large_of = [&](int32_t num_batches, int32_t routes) {
    return groups.turn_routes > 0 && routes > groups.turn_routes ? num_batches : 0;
  };
  const int32_t large = large_of(full, groups.batch_routes) + large_of(batches - full, in_last);
  const auto [before, all] = scan({count, batches - large, large});
  if (thread < experts) firsts[thread] = before.routes;
  if (groups.turn_routes == 0) {
    for (int32_t b = 0; b < batches; ++b)
      groups.batches[before.small + b] = {thread, before.routes, count, before.small};
  } else {
    for (int32_t b = 0; b < batches; ++b) {
      const bool is_large = b < large;
      const int32_t before_it = is_large ? before.large + b : before.small + b - large;
      const int32_t number = number_in_turns(before_it, is_large, all);
      groups.batches[number] = {thread, before.routes + b * groups.batch_routes,
                                b + 1 < batches ? groups.batch_routes : in_last, number};
    }
  }
  if (thread == 0) *groups.num_batches = {all.small + all.large, all.large};
  __syncthreads();

#pragma unroll
  for (int i = 0; i < kSortSteps; ++i) {
    const int32_t expert = places[i] >> 16;
    if (expert >= 0) places[i] = firsts[expert] + counts[expert] + (places[i] & 0xffff);
  }
  __syncthreads();  // the sorted routes replace the counts
#pragma unroll
  for (int i = 0; i < kSortSteps; ++i)
    if (places[i] >= 0) shared.sorted[places[i]] = static_cast<uint16_t>(first + i * kWarpSize);
  __syncthreads();
  for (int32_t i = thread; i < num_routes; i += kSortThreads)
    groups.routes[i] = shared.sorted[i];
}

/// Rows as pieces of 16 bytes.
struct Gathering {
  const uint4* x;
  int64_t x_stride;
  int32_t x_pieces;
  int32_t routes_per_x;
  const int32_t* routes;
  const float* weights;  ///< null in a kernel without them
  int32_t num_routes;
  uint4* to;
  int32_t to_pieces;
};

__device__ __forceinline__ uint4 scaled(uint4 eight, float weight) {
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&eight);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __bfloat1622float2(pairs[i]);
    pairs[i] = __floats2bfloat162_rn(pair.x * weight, pair.y * weight);
  }
  return eight;
}

template <bool kWeighted>
__global__ void __launch_bounds__(kGatherThreads) gather_kernel(Gathering args, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const auto first = static_cast<int32_t>(blockIdx.x) * kGatheredTogether;
  const auto piece = static_cast<int32_t>(blockIdx.y * kGatherThreads + threadIdx.x);
  if (piece >= args.to_pieces) return;
  uint4 values[kGatheredTogether];
#pragma unroll
  for (int i = 0; i < kGatheredTogether; ++i) {
    values[i] = {};
    if (first + i >= args.num_routes || piece >= args.x_pieces) continue;
    const int32_t route = args.routes[first + i];
    values[i] = args.x[route / args.routes_per_x * args.x_stride + piece];
    if constexpr (kWeighted) values[i] = scaled(values[i], args.weights[route]);
  }
#pragma unroll
  for (int i = 0; i < kGatheredTogether; ++i) {
    if (first + i < args.num_routes) args.to[int64_t{first + i} * args.to_pieces + piece] = values[i];
  }
}

struct Combination {
  const void* products;
  const int32_t* expert_ids;
  const float* weights;
  const float* bias;
  int32_t used;
  int32_t cols;
  float* out;
  int64_t out_stride;
  bool add_to_out;
};

__device__ __forceinline__ float4 four_of(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float4 four_of(const __nv_bfloat16* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xffff0000u), __uint_as_float(bits.y << 16),
          __uint_as_float(bits.y & 0xffff0000u)};
}

/// kWhole: the number of columns is a multiple of four.
template <class T, bool kWhole>
__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combination args, Stamp stamp) {
  begin_kernel(stamp);
  allow_next_kernel();
  const auto col = static_cast<int32_t>(4 * (blockIdx.x * kCombineThreads + threadIdx.x));
  const int64_t token = blockIdx.y;
  if (col >= args.cols) return;
  const float* weights = args.weights + token * args.used;
  const T* product = static_cast<const T*>(args.products) + token * args.used * args.cols + col;
  float sums[4] = {};
  const int columns = kWhole ? 4 : min(4, args.cols - col);
#pragma unroll 4
  for (int32_t j = 0; j < args.used; ++j, product += args.cols) {
    float values[4] = {};
    if constexpr (kWhole) {
      const float4 four = four_of(product);
      values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
    } else {
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (c < columns) values[c] = to_f32(product[c]);
    }
    if (args.bias != nullptr) {
      const float* bias = args.bias + int64_t{args.expert_ids[token * args.used + j]} * args.cols + col;
#pragma unroll
      for (int c = 0; c < 4; ++c)
        if (c < columns) values[c] += bias[c];
    }
#pragma unroll
    for (int c = 0; c < 4; ++c)
      sums[c] = fmaf(weights[j], values[c], sums[c]);
  }
  float* out = args.out + token * args.out_stride + col;
#pragma unroll
  for (int c = 0; c < 4; ++c)
    if (c < columns) out[c] = args.add_to_out ? out[c] + sums[c] : sums[c];
}

template <class T>
void launch_combine(Launch& launch, const Combination& args, int64_t tokens) {
  const int64_t of_block = 4 * kCombineThreads;
  const dim3 grid(static_cast<unsigned>((args.cols + of_block - 1) / of_block),
                  static_cast<unsigned>(tokens));
  launch("combine_routes", args.cols % 4 == 0 ? combine_kernel<T, true> : combine_kernel<T, false>, grid,
         kCombineThreads, 0, args);
}

}  // namespace

void group_routes(Launch& launch, const int32_t* expert_ids, int32_t num_routes, int32_t experts,
                  const RouteGroups& groups) {
  if (experts > kMaxExperts) require_equal("experts at most", kMaxExperts, experts);
  if (num_routes > kMostGroupedRoutes)
    require_equal("routes of experts at most", kMostGroupedRoutes, num_routes);
  launch("group_routes", group_kernel, 1, kSortThreads, 0, expert_ids, num_routes, experts, groups);
}

void gather_routes(Launch& launch, const Tensor& x, int32_t routes_per_x, const RouteGroups& groups,
                   const float* weights, const Tensor& to) {
  constexpr int64_t kOfPiece = 8;
  const Gathering args{.x = static_cast<const uint4*>(x.data),
                       .x_stride = x.stride / kOfPiece,
                       .x_pieces = static_cast<int32_t>(x.cols / kOfPiece),
                       .routes_per_x = routes_per_x,
                       .routes = groups.routes,
                       .weights = weights,
                       .num_routes = static_cast<int32_t>(to.rows),
                       .to = static_cast<uint4*>(to.data),
                       .to_pieces = static_cast<int32_t>(to.stride / kOfPiece)};
  const dim3 grid(static_cast<unsigned>((to.rows + kGatheredTogether - 1) / kGatheredTogether),
                  static_cast<unsigned>((args.to_pieces + kGatherThreads - 1) / kGatherThreads));
  launch("gather_routes", weights != nullptr ? gather_kernel<true> : gather_kernel<false>, grid,
         kGatherThreads, 0, args);
}

void combine_routes(Launch& launch, const RouteSum& sum) {
  const Combination args{sum.products.data, sum.expert_ids, sum.weights,
                         sum.bias,          sum.used,       static_cast<int32_t>(sum.out.cols),
                         sum.out.f32(),     sum.out.stride, sum.add_to_out};
  sum.products.dtype == DType::bf16 ? launch_combine<__nv_bfloat16>(launch, args, sum.out.rows)
                                    : launch_combine<float>(launch, args, sum.out.rows);
}

}  // namespace minfer::cuda
