#include <algorithm>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/team.cuh"
#include "kernels/cuda/moe/moe_routes.cuh"
#include "kernels/cuda/product/tile_vector.cuh"
#include "kernels/cuda/weights/weight_types.h"

/// Products of experts with the routes of few tokens, each route alone (see MoeProduct); weights quantised, x
/// bf16.
///
///   gate and up:  out[route] = activation(Wg[e] x + bg[e], Wu[e] x + bu[e])   a unit is a route and a panel of 16 rows
///   down:         out[t] (+)= sum over j of w[t, j] * (W[e_j] x[t, j])  a unit is a token and a panel
///
/// As in panel_loop.cuh, each warp has the next kStages chunks on their way to shared memory. But units are few and short: of gpt-oss-20b
/// 720 of 24 chunks, 5.5 for each SM. So a team of two thread blocks (a cluster, where there are any) takes units in turn, a warp every
/// 32nd chunk of them, and some units are finished together, each by the block whose turn it is: warps wait for each other once in a few
/// chunks, and teams differ by a unit in eleven. Only the experts have to be known first, so nothing is loaded before begin_kernel(). Down
/// needs no memory for the experts' products: each chunk's sums are weighted at once.
///
/// Bytes: the weights of each route's expert.
namespace minfer::cuda {
namespace {

#ifndef TEAM
#define TEAM 2
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr int kRanks = 1;
#else
constexpr int kRanks = TEAM;  ///< blocks of a team
#endif
constexpr int kUnitsOfRank = 3;
constexpr int kUnitsAtOnce = kRanks * kUnitsOfRank;

/// Sums of the units between two barriers that a block finishes.
template <class Multiplier, bool kGateUp>
using UnitPartials = float[kUnitsOfRank][kGateUp ? 2 : 1][kRanks * Multiplier::kWarps][kPanelRows];

template <class Multiplier, bool kGateUp>
struct VectorShared {
  alignas(128) char rings[Multiplier::kWarps][Multiplier::kStages][Multiplier::kChunkBytes];
  UnitPartials<Multiplier, kGateUp> partials[2];  ///< twice, so that one barrier is enough
};

/// A warp's way through the chunks of its team's units: those of a unit one panel after the other, of gate, then of up, or of the experts
/// of a token.
template <bool kGateUp>
struct UnitWalk {
  const MoeProduct& p;
  int panels = (p.rows + kPanelRows - 1) / kPanelRows;
  int outers = kGateUp ? 2 : p.routes_per_out;
  int chunks = static_cast<int>(tiles_of(p.cols));
  int count = p.num_routes / (kGateUp ? 1 : p.routes_per_out) * panels;
  PanelWalk at{Team<kRanks>::index(), 0, 0};  ///< panel: the unit
  int panel = 0;
  int route = 0;
  int x_row = 0;

  __device__ __forceinline__ UnitWalk(const MoeProduct& product, int first_chunk) : p(product) {
    at.advance(first_chunk, chunks, outers, Team<kRanks>::count());
    find();
  }
  __device__ __forceinline__ bool ends() const { return at.panel >= count; }
  __device__ __forceinline__ void advance(int distance) {
    const int unit = at.panel, outer = at.matrix;
    at.advance(distance, chunks, outers, Team<kRanks>::count());
    if (at.panel != unit || at.matrix != outer) find();
  }
  __device__ __forceinline__ void find() {
    const int index = at.panel / panels;
    panel = at.panel - index * panels;
    route = kGateUp ? index : index * outers + at.matrix;
    x_row = kGateUp ? route / p.routes_per_x : route;
  }
};

/// What a block keeps of the routes in shared memory, behind VectorShared: a load from global memory in the loop would wait for the copies
/// in front of it, although it finds its line in the L1.
struct RouteFacts {
  int32_t expert;
  float weight;
};

__host__ __device__ constexpr size_t route_bytes(int routes) {
  return (routes * sizeof(RouteFacts) + 15) / 16 * 16;
}

/// Writes unit number `number` of the team's from the sums of the warps that had chunks of it, in the chunks' order.
template <class Multiplier, bool kGateUp>
__device__ __forceinline__ void write_unit(
    const UnitWalk<kGateUp>& walk, int unit, int number, int row_of_panel,
    const float (&partials)[kGateUp ? 2 : 1][kRanks * Multiplier::kWarps][kPanelRows]) {
  constexpr int kWarps = kRanks * Multiplier::kWarps;
  const MoeProduct& p = walk.p;
  const int32_t out_row = unit / walk.panels;
  const int row = (unit - out_row * walk.panels) * kPanelRows + row_of_panel;
  if (row >= p.rows) return;
  const int terms = kGateUp ? walk.chunks : walk.chunks * walk.outers;
  const auto sum = [&](int matrix) {
    const int first = (number * (kGateUp ? 2 : 1) + matrix) * terms;
    float total = 0.0f;
    for (int i = 0; i < min(terms, kWarps); ++i)
      total += partials[matrix][(first + i) % kWarps][row_of_panel];
    return total;
  };
  const float value = sum(0);
  if constexpr (kGateUp) {
    store_route(p, out_row, row, gated<false>(p, p.expert_ids[out_row], row, value, sum(1)));
  } else {
    auto* out = static_cast<float*>(p.out) + out_row * p.out_stride + row;
    *out = p.add_to_out ? *out + value : value;
  }
}

/// `brings_x`: rows of x are brought to shared memory as operands, all of them.
template <DType type, class Multiplier, bool kGateUp>
__global__ void __launch_bounds__(Multiplier::kWarps * 32, 1)
    moe_vector_kernel(const __grid_constant__ MoeProduct p, bool brings_x, Stamp stamp) {
  constexpr int kWarps = kRanks * Multiplier::kWarps;
  constexpr int kStages = Multiplier::kStages;
  using Shared = VectorShared<Multiplier, kGateUp>;
  using Operand = typename Multiplier::Operand;
  extern __shared__ __align__(128) char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warp_of_team = Team<kRanks>::rank() * Multiplier::kWarps + warp;
  begin_kernel(stamp);
  allow_next_kernel();
  Team<kRanks>::arrive();
  auto* routes = reinterpret_cast<RouteFacts*>(shared_bytes + sizeof(Shared));
  for (auto i = static_cast<int>(threadIdx.x); i < p.num_routes; i += Multiplier::kWarps * 32)
    routes[i] = {p.expert_ids[i], kGateUp ? 1.0f : p.route_weights[i]};
  __syncthreads();

  UnitWalk<kGateUp> next(p, warp_of_team);
  const auto copy_next = [&](char* to) {
    if (!next.ends()) {
      const void* first = kGateUp && next.at.matrix == 1 ? p.up : p.weight;
      const char* expert = static_cast<const char*>(first) + routes[next.route].expert * p.matrix_bytes;
      copy_tile<type>(to, expert, p.cols, next.panel, next.at.chunk, lane);
    }
    commit_copies();
    next.advance(kWarps);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage)
    copy_next(shared.rings[warp][stage]);

  UnitWalk<kGateUp> now(p, warp_of_team);
  const auto row_of_x = [&](int row) {
    return PanelArgs{.x = static_cast<const __nv_bfloat16*>(p.x) + row * p.x_stride, .cols = p.cols};
  };
  const char* x = nullptr;
  if constexpr (Multiplier::kBringsX) {
    if (brings_x) {
      auto* operands = reinterpret_cast<typename Operand::Shared*>(shared_bytes + sizeof(Shared) +
                                                                   route_bytes(p.num_routes));
      bring_operands<type, false>(
          operands, p.num_routes / p.routes_per_x * now.chunks, warp, Multiplier::kWarps, lane,
          [&](int i) { return row_of_x(i / now.chunks); }, [&](int i) { return i % now.chunks * kTileCols; });
      x = reinterpret_cast<const char*>(operands);
      __syncthreads();
    }
  }
  Team<kRanks>::wait();

  Multiplier multiplier;
  int held_row = -1;
  int stage = 0;
  int parity = 0;
  int number = 0;  // of units before
  const int stride = Team<kRanks>::count();
  for (int first = Team<kRanks>::index(); first < now.count; first += kUnitsAtOnce * stride) {
    for (int i = 0; i < kUnitsAtOnce && first + i * stride < now.count; ++i) {
      auto& partials = shared.partials[parity][i / kRanks];
      float sums[2] = {};
      bool has_chunks = false;
#pragma unroll 1
      for (int outer = 0; outer < now.outers; ++outer) {
        while (now.at.panel == first + i * stride && now.at.matrix == outer) {
          char* held = shared.rings[warp][stage];
          wait_for_copies<kStages - 1>();
          __syncwarp();
          const typename Multiplier::Chunk chunk(held, lane);
          __syncwarp();
          copy_next(held);
          if (x == nullptr && now.x_row != held_row) multiplier.held_index = -1;
          held_row = now.x_row;
          const int index = x == nullptr ? now.at.chunk : now.x_row * now.chunks + now.at.chunk;
          multiplier.multiply(chunk, row_of_x(now.x_row), x, index, lane);
          if constexpr (!kGateUp) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              sums[j] = fmaf(routes[now.route].weight, multiplier.sums[j], sums[j]);
              multiplier.sums[j] = 0.0f;
            }
          }
          has_chunks = true;
          stage = stage + 1 == kStages ? 0 : stage + 1;
          now.advance(kWarps);
        }
        if (kGateUp && has_chunks) {
          multiplier.store(Team<kRanks>::of_rank(partials[outer][warp_of_team], i % kRanks), lane);
          has_chunks = false;
        }
      }
      if (!kGateUp && has_chunks) {
        multiplier.sums[0] = sums[0];
        multiplier.sums[1] = sums[1];
        multiplier.store(Team<kRanks>::of_rank(partials[0][warp_of_team], i % kRanks), lane);
      }
    }
    Team<kRanks>::sync();
    const int mine =
        static_cast<int>(threadIdx.x) / kPanelRows * kRanks + Team<kRanks>::rank();  // of these units
    const int unit = first + mine * stride;
    if (mine < kUnitsAtOnce && unit < now.count) {
      write_unit<Multiplier, kGateUp>(now, unit, number + mine, static_cast<int>(threadIdx.x) % kPanelRows,
                                      shared.partials[parity][mine / kRanks]);
    }
    number += kUnitsAtOnce;
    parity ^= 1;
  }
}

/// Of `shared` bytes and what the operands of x would take more.
template <class Multiplier>
bool brings_x(const MoeProduct& p, int64_t units, int64_t blocks, size_t shared, size_t x_bytes) {
  if (!Multiplier::kBringsX || shared + x_bytes > most_shared_bytes()) return false;
  const int64_t x_chunks = p.num_routes / p.routes_per_x * tiles_of(p.cols);
  const bool is_held = x_chunks == tiles_of(p.cols) && kRanks * Multiplier::kWarps % x_chunks == 0;
  const int64_t outers = p.up != nullptr ? 2 : p.routes_per_out;
  return !is_held && 2 * x_chunks * blocks <= units * outers * tiles_of(p.cols);
}

template <DType type, bool kGateUp>
void run(Launch& launch, const MoeProduct& p) {
  using Multiplier = TileVectorMultiplier<type, false>;
  using Shared = VectorShared<Multiplier, kGateUp>;
  static_assert(sizeof(Shared) <= kMostShared);
  const int64_t panels = (p.rows + kPanelRows - 1) / kPanelRows;
  const int64_t units = p.num_routes / (kGateUp ? 1 : p.routes_per_out) * panels;
  const int ranks = launches_start_early() ? kRanks : 1;
  const int64_t blocks = std::min<int64_t>(units, launch.num_sms() / ranks) * ranks;
  const auto x_bytes = static_cast<size_t>(p.num_routes / p.routes_per_x * tiles_of(p.cols)) *
                       sizeof(typename Multiplier::Operand::Shared);
  const size_t shared = sizeof(Shared) + route_bytes(p.num_routes);
  const bool brings = brings_x<Multiplier>(p, units, blocks, shared, x_bytes);
  launch.in_clusters(ranks)(kGateUp ? "moe_gate_up" : "moe_down",
                            moe_vector_kernel<type, Multiplier, kGateUp>, static_cast<unsigned>(blocks),
                            Multiplier::kWarps * 32, shared + (brings ? x_bytes : 0), p, brings);
}

}  // namespace

void moe_vector_product(Launch& launch, const MoeProduct& p) {
  for_type(ExpertTypes{}, "moe_vector_product", p.dtype,
           [&](auto type) { p.up != nullptr ? run<type, true>(launch, p) : run<type, false>(launch, p); });
}

}  // namespace minfer::cuda
