#include "kernels/cuda/moe/moe_routes.cuh"
#include "kernels/cuda/product/tile_vector.cuh"
#include "kernels/cuda/weights/weight_types.h"

/// Products of experts with the routes of few tokens, each route alone (see MoeProduct); weights quantised, x
/// bf16.
///
///   gate and up:  out[route] = activation(Wg[e] x + bg[e], Wu[e] x + bu[e])   a unit is a route and a panel of 16 rows
///   down:         out[t] (+)= sum over j of w[t, j] * (W[e_j] x[t, j])  a unit is a token and a panel
///
/// The frame is that of panel_loop.cuh: one thread block an SM takes units in turn, their chunks (of gate,
/// then of up; of the experts of a token one after the other) go round its warps, and each warp has the next
/// kStages chunks on their way to shared memory. Only the experts have to be known first, so nothing is
/// loaded before begin_kernel(). Down needs no memory for the experts' products: each chunk's sums are
/// weighted at once.
///
/// Bytes: the weights of each route's expert.
namespace minfer::cuda {
namespace {

template <class Multiplier>
struct VectorShared {
  alignas(128) char rings[Multiplier::kWarps][Multiplier::kStages][Multiplier::kChunkBytes];
  float partials[2][2][Multiplier::kWarps][kPanelRows];  ///< of two units, so that one barrier is enough
};

/// What a walk of `outers` times the chunks of a panel means.
template <bool kGateUp>
struct VectorUnits {
  const MoeProduct& p;
  int panels = (p.rows + kPanelRows - 1) / kPanelRows;
  int outers = kGateUp ? 2 : p.routes_per_out;
  int count = p.num_routes / (kGateUp ? 1 : p.routes_per_out) * panels;

  __device__ int route(const PanelWalk& at) const {
    const int index = at.panel / panels;
    return kGateUp ? index : index * p.routes_per_out + at.matrix;
  }
  __device__ const char* matrix(const PanelWalk& at) const {
    const void* first = kGateUp && at.matrix == 1 ? p.up : p.weight;
    return static_cast<const char*>(first) + p.expert_ids[route(at)] * p.matrix_bytes;
  }
};

template <class Multiplier, bool kGateUp>
__device__ __forceinline__ void write_unit(const MoeProduct& p, const VectorUnits<kGateUp>& units, int unit,
                                           const float (&partials)[2][Multiplier::kWarps][kPanelRows]) {
  const int row = unit % units.panels * kPanelRows + static_cast<int>(threadIdx.x);
  if (threadIdx.x >= kPanelRows || row >= p.rows) return;
  const float value = sum_of_warps(partials[0], static_cast<int>(threadIdx.x));
  const int32_t out_row = unit / units.panels;
  if constexpr (kGateUp) {
    const float up = sum_of_warps(partials[1], static_cast<int>(threadIdx.x));
    store_route(p, out_row, row, gated<false>(p, p.expert_ids[out_row], row, value, up));
  } else {
    auto* out = static_cast<float*>(p.out) + out_row * p.out_stride + row;
    *out = p.add_to_out ? *out + value : value;
  }
}

template <DType type, class Multiplier, bool kGateUp>
__global__ void __launch_bounds__(Multiplier::kWarps * 32, 1)
    moe_vector_kernel(const __grid_constant__ MoeProduct p, Stamp stamp) {
  constexpr int kWarps = Multiplier::kWarps;
  constexpr int kStages = Multiplier::kStages;
  extern __shared__ __align__(128) char shared_bytes[];
  auto& shared = *reinterpret_cast<VectorShared<Multiplier>*>(shared_bytes);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const VectorUnits<kGateUp> units{p};
  const int chunks = static_cast<int>(tiles_of(p.cols));
  begin_kernel(stamp);
  allow_next_kernel();

  PanelWalk next{static_cast<int>(blockIdx.x), 0, 0};
  next.advance(warp, chunks, units.outers, static_cast<int>(gridDim.x));
  const auto copy_next = [&](char* to) {
    if (next.panel < units.count)
      copy_tile<type>(to, units.matrix(next), p.cols, next.panel % units.panels, next.chunk, lane);
    commit_copies();
    next.advance(kWarps, chunks, units.outers, static_cast<int>(gridDim.x));
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage)
    copy_next(shared.rings[warp][stage]);

  Multiplier multiplier;
  PanelArgs x{.cols = p.cols};
  PanelWalk now{static_cast<int>(blockIdx.x), 0, 0};
  now.advance(warp, chunks, units.outers, static_cast<int>(gridDim.x));
  int stage = 0;
  int parity = 0;
  for (auto unit = static_cast<int>(blockIdx.x); unit < units.count; unit += static_cast<int>(gridDim.x)) {
    float sums[2] = {};
#pragma unroll 1
    for (int outer = 0; outer < units.outers; ++outer) {
      while (now.panel == unit && now.matrix == outer) {
        const int route = units.route(now);
        const void* row = static_cast<const __nv_bfloat16*>(p.x) + route / p.routes_per_x * p.x_stride;
        if (row != x.x) multiplier.held_index = -1;
        x.x = row;
        char* held = shared.rings[warp][stage];
        wait_for_copies<kStages - 1>();
        __syncwarp();
        const typename Multiplier::Chunk chunk(held, lane);
        __syncwarp();
        copy_next(held);
        multiplier.multiply(chunk, x, nullptr, now.chunk, lane);
        if constexpr (!kGateUp) {
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            sums[i] = fmaf(p.route_weights[route], multiplier.sums[i], sums[i]);
            multiplier.sums[i] = 0.0f;
          }
        }
        stage = stage + 1 == kStages ? 0 : stage + 1;
        now.advance(kWarps, chunks, units.outers, static_cast<int>(gridDim.x));
      }
      if constexpr (kGateUp) multiplier.store(shared.partials[parity][outer][warp], lane);
    }
    if constexpr (!kGateUp) {
      multiplier.sums[0] = sums[0];
      multiplier.sums[1] = sums[1];
      multiplier.store(shared.partials[parity][0][warp], lane);
    }
    __syncthreads();
    write_unit<Multiplier, kGateUp>(p, units, unit, shared.partials[parity]);
    parity ^= 1;
  }
}

template <DType type>
void run(Launch& launch, const MoeProduct& p) {
  using Multiplier = TileVectorMultiplier<type, false>;
  constexpr size_t kShared = sizeof(VectorShared<Multiplier>);
  static_assert(kShared <= kMostShared);
  const bool gate_up = p.up != nullptr;
  const int64_t panels = (p.rows + kPanelRows - 1) / kPanelRows;
  const int64_t units = p.num_routes / (gate_up ? 1 : p.routes_per_out) * panels;
  launch(gate_up ? "moe_gate_up" : "moe_down",
         gate_up ? moe_vector_kernel<type, Multiplier, true> : moe_vector_kernel<type, Multiplier, false>,
         static_cast<unsigned>(units < launch.num_sms() ? units : launch.num_sms()), Multiplier::kWarps * 32,
         kShared, p);
}

}  // namespace

void moe_vector_product(Launch& launch, const MoeProduct& p) {
  for_type(ExpertTypes{}, "moe_vector_product", p.dtype, [&](auto type) { run<type>(launch, p); });
}

}  // namespace minfer::cuda
