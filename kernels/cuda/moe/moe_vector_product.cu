#include <algorithm>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/moe/routes/moe_routes.cuh"
#include "kernels/cuda/product/strip/tile_vector.cuh"
#include "kernels/cuda/weights/weight_types.h"

/// Products of experts with the routes of few tokens, each route alone (see MoeProduct); weights quantised, x
/// bf16.
///
///   gate and up:  out[route] = activation(Wg[e] x + bg[e], Wu[e] x + bu[e])   a unit is a route and a strip of 16 rows
///   down:         out[t] (+)= sum over j of w[t, j] * (W[e_j] x[t, j] + b[e_j])  a unit is a token and a strip
///
/// One thread block an SM takes consecutive units. Their chunks (of gate, then of up; of the experts of a token in turn)
/// are divided evenly among its warps, each of which keeps the next kStages in flight to shared memory (strip_loop.cuh).
/// Units are few and short (gpt-oss-20b: 5.5 of 24 chunks for each SM), so the overhead of a chunk counts. A warp's
/// chunks lie behind each other in memory. It adds up a part of a sum (gate or up of a strip; for down a strip) while it
/// stays in it, and the warps meet once, for all units of a round. Only the experts have to be known first, so nothing is
/// loaded before begin_kernel(). Down needs no memory for the experts' products: each chunk's sums are weighted at once.
///
/// Bytes: the weights of each route's expert.
namespace minfer::cuda {
namespace {

/// The memory in front of the operands of x. A round has one unit for each warp, so that a warp has chunks of
/// at most two parts' worth (kParts: more, since it may begin in the middle of one).
template <class Multiplier>
struct VectorShared {
  static constexpr int kUnits = Multiplier::kWarps;
  static constexpr int kParts = 4;
  alignas(128) char rings[Multiplier::kWarps][Multiplier::kStages][Multiplier::kChunkBytes];
  float sums[Multiplier::kWarps][kParts][kStripRows];
};

/// Divides the chunks of a round among kWarps warps.
template <int kWarps>
struct ChunkShares {
  int chunks;
  __device__ __forceinline__ int first_of(int warp) const { return chunks * warp / kWarps; }
  __device__ __forceinline__ int warp_of(int chunk) const { return ((chunk + 1) * kWarps - 1) / chunks; }
};

/// The units of a product.
template <bool kGateUp>
struct VectorUnits {
  const MoeProduct& p;
  int strips = (p.rows + kStripRows - 1) / kStripRows;
  int chunks = static_cast<int>(tiles_of(p.cols));
  int outers = kGateUp ? 2 : p.routes_per_out;
  int count = p.num_routes / (kGateUp ? 1 : p.routes_per_out) * strips;
  int chunks_of_part = kGateUp ? chunks : outers * chunks;

  /// The first unit of a block.
  __device__ __forceinline__ int first_of(int block) const {
    return static_cast<int>(int64_t{count} * block / gridDim.x);
  }
};

/// A position among the chunks of units.
template <bool kGateUp>
struct UnitWalk {
  int row_block;  ///< row of `out`: a route, or a token
  int strip;
  int outer;
  int chunk;

  /// Chunk `at` among the chunks of unit `unit` and the units after it.
  __device__ __forceinline__ UnitWalk(const VectorUnits<kGateUp>& units, int unit, int at) {
    const int segment = at / units.chunks;
    chunk = at - segment * units.chunks;
    unit += segment / units.outers;
    outer = segment % units.outers;
    row_block = unit / units.strips;
    strip = unit - row_block * units.strips;
  }
  /// Goes to the next chunk; returns whether it is in another matrix or strip.
  __device__ __forceinline__ bool advance(const VectorUnits<kGateUp>& units) {
    if (++chunk < units.chunks) return false;
    chunk = 0;
    if (++outer == units.outers) {
      outer = 0;
      if (++strip == units.strips) strip = 0, ++row_block;
    }
    return true;
  }
  __device__ __forceinline__ int route(const VectorUnits<kGateUp>& units) const {
    return kGateUp ? row_block : row_block * units.outers + outer;
  }
};

/// For down: the weighted sum of the biases of the experts of routes from `first` on that go to one row of out.
__device__ __forceinline__ float weighted_bias(const MoeProduct& p, int32_t first, int row) {
  float sum = 0.0f;
  if (p.bias == nullptr) return sum;
  for (int32_t j = first; j < first + p.routes_per_out; ++j)
    sum = fmaf(p.route_weights[j], p.bias[int64_t{p.expert_ids[j]} * p.rows + row], sum);
  return sum;
}

/// Writes a row of unit `number` in a round that begins with unit `first`.
template <class Multiplier, bool kGateUp>
__device__ __forceinline__ void write_row(const VectorUnits<kGateUp>& units,
                                          const VectorShared<Multiplier>& shared,
                                          const ChunkShares<Multiplier::kWarps>& share, int first, int number,
                                          int row_of_strip) {
  const MoeProduct& p = units.p;
  const int row_block = (first + number) / units.strips;
  const int row = (first + number - row_block * units.strips) * kStripRows + row_of_strip;
  if (row >= p.rows) return;
  const auto sum_of = [&](int part) {
    const int begin = part * units.chunks_of_part;
    const int last = share.warp_of(begin + units.chunks_of_part - 1);
    int warp = share.warp_of(begin);
    float total = shared.sums[warp][part - share.first_of(warp) / units.chunks_of_part][row_of_strip];
    while (++warp <= last)
      if (share.first_of(warp) < share.first_of(warp + 1)) total += shared.sums[warp][0][row_of_strip];
    return total;
  };
  if constexpr (kGateUp) {
    const float gate = sum_of(2 * number), up = sum_of(2 * number + 1);
    store_route(p, row_block, row, gated<false>(p, row_block, p.expert_ids[row_block], row, gate, up));
  } else {
    const float value = sum_of(number) + weighted_bias(p, row_block * p.routes_per_out, row);
    auto* out = static_cast<float*>(p.out) + row_block * p.out_stride + row;
    *out = p.add_to_out ? *out + value : value;
  }
}

/// `brings_x`: all rows of x are copied to shared memory as operands.
template <DType type, class Multiplier, bool kGateUp>
__global__ void __launch_bounds__(Multiplier::kWarps * 32, 1)
    moe_vector_kernel(const __grid_constant__ MoeProduct p, bool brings_x, Stamp stamp) {
  constexpr int kWarps = Multiplier::kWarps;
  constexpr int kStages = Multiplier::kStages;
  constexpr int kThreads = kWarps * 32;
  using Shared = VectorShared<Multiplier>;
  using Operands = typename Multiplier::Operand::Shared;
  extern __shared__ __align__(128) char shared_bytes[];
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const VectorUnits<kGateUp> units{p};
  begin_kernel(stamp);
  allow_next_kernel();

  const auto row_of_x = [&](int row) {
    return ProductArgs{.x = static_cast<const __nv_bfloat16*>(p.x) + row * p.x_stride, .cols = p.cols};
  };
  const char* x = nullptr;
  const int last = units.first_of(static_cast<int>(blockIdx.x) + 1);
  for (int first = units.first_of(static_cast<int>(blockIdx.x)); first < last; first += Shared::kUnits) {
    const int count = min(Shared::kUnits, last - first);
    const ChunkShares<kWarps> share{count * units.outers * units.chunks};
    const int begin = share.first_of(warp), end = share.first_of(warp + 1);

    UnitWalk<kGateUp> next(units, first, begin), now = next;
    int left = end - begin;
    const char* tile = nullptr;
    const auto find_tile = [&] {
      const void* matrix = kGateUp && next.outer == 1 ? p.up : p.weight;
      tile = static_cast<const char*>(matrix) + p.expert_ids[next.route(units)] * p.matrix_bytes +
             (static_cast<int64_t>(next.strip) * units.chunks + next.chunk) * Multiplier::kChunkBytes;
    };
    if (left > 0) find_tile();
    const auto copy_next = [&](char* to) {
      if (left > 0) {
        copy_tile<type>(to, tile, lane);
        tile += Multiplier::kChunkBytes;
        if (next.advance(units) && left > 1) find_tile();
        --left;
      }
      commit_copies();
    };
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage)
      copy_next(shared.rings[warp][stage]);
    if constexpr (Multiplier::kBringsX) {
      if (brings_x && x == nullptr) {
        auto* operands = reinterpret_cast<Operands*>(shared_bytes + sizeof(Shared));
        bring_operands<type, false, 2>(
            operands, p.num_routes / p.routes_per_x * units.chunks, warp, kWarps, lane,
            [&](int i) { return row_of_x(i / units.chunks); },
            [&](int i) { return i % units.chunks * kTileCols; });
        x = reinterpret_cast<const char*>(operands);
        __syncthreads();
      }
    }

    Multiplier multiplier;
    int part = 0;
    int stage = 0;
    float sums[2] = {};
    const auto end_part = [&] {
      if constexpr (!kGateUp) multiplier.sums[0] = sums[0], multiplier.sums[1] = sums[1];
      multiplier.store(shared.sums[warp][part++], lane);
      sums[0] = sums[1] = 0.0f;
    };
    int route = now.route(units);
    int row = route / p.routes_per_x;
    float weight = kGateUp || begin == end ? 1.0f : p.route_weights[route];
    bool is_open = false;
    for (int at = begin; at < end; ++at) {
      char* held = shared.rings[warp][stage];
      wait_for_copies<kStages - 1>();
      __syncwarp();
      const typename Multiplier::Chunk chunk(held, lane);
      __syncwarp();
      copy_next(held);
      const int index = row * units.chunks + now.chunk;
      multiplier.held_index = -1;
      multiplier.hold_x(row_of_x(row), x, x == nullptr ? now.chunk : index, lane);
      multiplier.held_index = index;
      multiplier.multiply(chunk, row_of_x(row), x, index, lane);
      is_open = true;
      stage = stage + 1 == kStages ? 0 : stage + 1;
      if constexpr (!kGateUp) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sums[i] = fmaf(weight, multiplier.sums[i], sums[i]);
          multiplier.sums[i] = 0.0f;
        }
      }
      if (now.advance(units)) {
        if (kGateUp || now.outer == 0) {
          end_part();
          is_open = false;
        }
        route = now.route(units);
        row = route / p.routes_per_x;
        if (!kGateUp && at + 1 < end) weight = p.route_weights[route];
      }
    }
    if (is_open) end_part();
    __syncthreads();
    for (auto i = static_cast<int>(threadIdx.x); i < count * kStripRows; i += kThreads)
      write_row<Multiplier, kGateUp>(units, shared, share, first, i / kStripRows, i % kStripRows);
    if (first + Shared::kUnits < last) __syncthreads();
  }
}

/// True if operands of x for all chunks are less work than operands made chunk by chunk, and fit behind `shared` bytes.
template <class Multiplier>
bool brings_x(const MoeProduct& p, int64_t units, int64_t blocks, size_t shared, size_t x_bytes) {
  if (!Multiplier::kBringsX || shared + x_bytes > most_shared_bytes()) return false;
  constexpr int64_t kLeastSpared =
      4;  // chunks per warp that shared operands must save: the cost of a barrier
  const int64_t outers = p.up != nullptr ? 2 : p.routes_per_out;
  const int64_t alone = units * outers / blocks, once = p.num_routes / p.routes_per_x;
  return (alone - once) * tiles_of(p.cols) >= kLeastSpared * Multiplier::kWarps;
}

template <DType type, bool kGateUp>
void run(Launch& launch, const MoeProduct& p) {
  using Multiplier = TileVectorMultiplier<type, false>;
  using Shared = VectorShared<Multiplier>;
  static_assert(sizeof(Shared) <= kMostShared);
  const int64_t strips = (p.rows + kStripRows - 1) / kStripRows;
  const int64_t units = p.num_routes / (kGateUp ? 1 : p.routes_per_out) * strips;
  const int64_t blocks = std::min<int64_t>(units, launch.num_sms());
  const size_t shared = sizeof(Shared);
  const auto x_bytes = static_cast<size_t>(p.num_routes / p.routes_per_x * tiles_of(p.cols)) *
                       sizeof(typename Multiplier::Operand::Shared);
  const bool brings = brings_x<Multiplier>(p, units, blocks, shared, x_bytes);
  launch(kGateUp ? "moe_gate_up" : "moe_down", moe_vector_kernel<type, Multiplier, kGateUp>,
         static_cast<unsigned>(blocks), Multiplier::kWarps * 32,
         std::max(shared + (brings ? x_bytes : 0), kHalfOfShared), p, brings);
}

}  // namespace

void moe_vector_product(Launch& launch, const MoeProduct& p) {
  for_type(ExpertTypes{}, "moe_vector_product", p.dtype,
           [&](auto type) { p.up != nullptr ? run<type, true>(launch, p) : run<type, false>(launch, p); });
}

}  // namespace minfer::cuda
