// The choice of keys by a lightning indexer (ChooseKeysArgs has the formula): scores of all keys that a query sees, then the largest of them.
//
//   q        [tokens, heads * size] bf16 or f32, rows `q_stride` apart
//   weights  [tokens, heads] f32, rows `weight_stride` apart
//   keys     [num_blocks, block_size, size] f32, f16 or bf16
//   scores   [queries, scored keys] f32, of some queries at a time
//   chosen   [tokens, most] i32: positions, ascending
//
// Scores: a block takes one query and some tiles of 64 of its keys in turn: grid (tiles of a query at a time, queries). With q of bf16 and
// heads of 128 it multiplies on tensor cores: a warp has 16 keys of the tile and all heads. Otherwise a warp takes a key, a lane
// every 32nd element of a head, in f32. FLOPs: 2 heads * size for each query and key; a key is read once for each query, through L2.
//
// Selection: a block takes one query: grid (queries). It finds the smallest score that is chosen by its digits, 11 bits first (a radix
// select), and then writes the positions of larger scores, and the first ones of equal scores, in order. Scores are read four times, from
// L2.
//
// A query that sees no more than `most` keys, and padding, which sees none or one, are left out. Sums have a fixed order, so results
// repeat bit for bit. All reads are behind begin_kernel(). Alignment of the tensor-core path: 16 bytes of q and keys.
#include <algorithm>
#include <cstdint>
#include <string>

#include "kernels/cuda/attention/chosen/choose_keys.h"
#include "kernels/cuda/attention/shared/attention_tiles.cuh"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/ptx/order_key.cuh"
#include "kernels/cuda/weights/element_types.h"

namespace minfer::cuda {
namespace {

constexpr int kScoreWarps = 4;
constexpr int kScoreThreads = kScoreWarps * kWarpSize;
constexpr int kTileKeys = 64;
constexpr int kSelectThreads = 1024;
constexpr int kSelectWarps = kSelectThreads / kWarpSize;
/// The size of heads on tensor cores, and the most of them: DeepSeek's and GLM's have 64 and 32.
constexpr int kIndexerSize = 128;
constexpr int kMostIndexerHeads = kMaxIndexerColumns / kIndexerSize;
/// Memory for scores, unless those of a single query take more.
constexpr int64_t kScoreBytes = int64_t{64} << 20;

struct ChoiceParams {
  const void* q;
  int64_t q_stride;
  const float* weights;
  int64_t weight_stride;
  const void* keys;
  KvSlots cache;
  const int32_t* positions;
  const int32_t* query_start;
  const int32_t* block_table;
  int32_t max_blocks;
  int32_t num_sequences;
  int32_t first_token;  ///< of the queries at a time
  int32_t heads;
  int32_t size;
  float scale;
  int32_t most;
  float* scores;
  int64_t score_stride;
  int32_t* chosen;
};

/// The keys that the block's query chooses from; 0: it chooses none.
__device__ int32_t keys_to_choose_from(const ChoiceParams& p, int32_t token) {
  const int32_t keys = p.positions[token] + 1;
  return keys > p.most ? keys : 0;
}

/// The row of the block table of the token's sequence.
__device__ const int32_t* blocks_of(const ChoiceParams& p, int32_t token) {
  int32_t low = 0, high = p.num_sequences;
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (p.query_start[middle] <= token ? low : high) = middle;
  }
  return p.block_table + int64_t{low} * p.max_blocks;
}

template <class Kv>
__device__ const Kv* key_row(const ChoiceParams& p, const int32_t* blocks, int32_t position) {
  const BlockOffset place = block_offset(p.cache, position);
  return static_cast<const Kv*>(p.keys) + kv_row(p.cache, blocks[place.block], 0, place.offset) * p.size;
}

/// Any types and sizes.
template <class Q, class Kv>
__global__ void __launch_bounds__(kScoreThreads) score_keys_kernel(ChoiceParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  __shared__ float q[kMaxIndexerColumns];
  begin_kernel(stamps);
  allow_next_kernel();
  const int32_t query = static_cast<int32_t>(blockIdx.y), token = p.first_token + query;
  const int32_t keys = keys_to_choose_from(p, token), columns = p.heads * p.size;
  if (keys == 0) return;
  for (auto i = static_cast<int32_t>(threadIdx.x); i < columns; i += kScoreThreads)
    q[i] = to_f32(static_cast<const Q*>(p.q)[token * p.q_stride + i]);
  __syncthreads();
  const int32_t* blocks = blocks_of(p, token);
  const float* weights = p.weights + token * p.weight_stride;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize,
                warp = static_cast<int32_t>(threadIdx.x) / kWarpSize;
  for (int32_t position = static_cast<int32_t>(blockIdx.x) * kScoreWarps + warp; position < keys;
       position += static_cast<int32_t>(gridDim.x) * kScoreWarps) {
    const Kv* key = key_row<Kv>(p, blocks, position);
    float score = 0.0f;
    for (int32_t head = 0; head < p.heads; ++head) {
      float dot = 0.0f;
      for (int32_t d = lane; d < p.size; d += kWarpSize)
        dot += q[head * p.size + d] * to_f32(key[d]);
      score += weights[head] * fmaxf(warp_sum(dot), 0.0f);
    }
    if (lane == 0) p.scores[query * p.score_stride + position] = p.scale * score;
  }
}

/// Heads of 128 on tensor cores. Kv: bf16 or f16.
template <class Kv>
__global__ void __launch_bounds__(kScoreThreads) score_keys_tile_kernel(ChoiceParams p, Stamps stamps) {
  using Rows = SharedRows<kIndexerSize * 2>;
  constexpr int kPieces = kIndexerSize / 8, kSteps = kIndexerSize / 32;
  constexpr int kKeyTiles = kTileKeys / kScoreWarps / 8;
  const EndStamp end_stamp(stamps);
  __shared__ __align__(128) unsigned char q[kMostIndexerHeads * kIndexerSize * 2];
  __shared__ __align__(128) unsigned char tile[kTileKeys * kIndexerSize * 2];
  __shared__ float weights[kMostIndexerHeads];
  begin_kernel(stamps);
  allow_next_kernel();
  const int32_t query = static_cast<int32_t>(blockIdx.y), token = p.first_token + query;
  const int32_t keys = keys_to_choose_from(p, token), groups = (p.heads + 15) / 16;
  if (keys == 0) return;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % kWarpSize, warp = thread / kWarpSize;
  for (int32_t i = thread; i < 16 * groups * kPieces; i += kScoreThreads) {
    const int32_t head = i / kPieces, piece = i % kPieces;
    uint4 eight = {};
    if (head < p.heads) {
      eight = *reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(p.q) + token * p.q_stride +
                                              head * kIndexerSize + 8 * piece);
      eight = {from_bf16_pair<Kv>(eight.x), from_bf16_pair<Kv>(eight.y), from_bf16_pair<Kv>(eight.z),
               from_bf16_pair<Kv>(eight.w)};
    }
    *reinterpret_cast<uint4*>(q + Rows::offset(head, piece)) = eight;
  }
  if (thread < 16 * groups)
    weights[thread] = thread < p.heads ? p.scale * p.weights[token * p.weight_stride + thread] : 0.0f;
  const int32_t* blocks = blocks_of(p, token);
  const uint32_t q_at = shared_address(q), keys_at = shared_address(tile);
  for (int32_t first = static_cast<int32_t>(blockIdx.x) * kTileKeys; first < keys;
       first += static_cast<int32_t>(gridDim.x) * kTileKeys) {
    __syncthreads();  // q has come, and no warp reads the tile before
    for (int32_t i = thread; i < kTileKeys * kPieces; i += kScoreThreads) {
      const int32_t row = i / kPieces, piece = i % kPieces;
      const bool there = first + row < keys;
      const Kv* key = key_row<Kv>(p, blocks, there ? first + row : 0);
      copy_async(keys_at + static_cast<uint32_t>(Rows::offset(row, piece)), key + 8 * piece, there);
    }
    commit_copies();
    wait_for_copies<0>();
    __syncthreads();
    uint32_t b[kKeyTiles][kSteps][4];
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step)
        load_matrices(b[t][step], keys_at + static_cast<uint32_t>(Rows::offset(
                                                warp * (kTileKeys / kScoreWarps) + 8 * t + lane % 8,
                                                4 * step + lane / 8)));
    }
    float sums[kKeyTiles][2] = {};
    for (int32_t group = 0; group < groups; ++group) {
      float products[kKeyTiles][4] = {};
#pragma unroll
      for (int step = 0; step < 2 * kSteps; ++step) {
        uint32_t a[4];
        load_matrices(
            a, q_at + static_cast<uint32_t>(Rows::offset(16 * group + lane % 16, 2 * step + lane / 16)));
#pragma unroll
        for (int t = 0; t < kKeyTiles; ++t)
          multiply_add<Kv>(products[t], a, b[t][step / 2][2 * (step % 2)],
                           b[t][step / 2][2 * (step % 2) + 1]);
      }
      const float weight[2] = {weights[16 * group + lane_group()], weights[16 * group + lane_group() + 8]};
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[t][i % 2] += weight[i / 2] * fmaxf(products[t][i], 0.0f);
      }
    }
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float score = sum_of_groups(sums[t][i]);
        const int32_t position = first + warp * (kTileKeys / kScoreWarps) + 8 * t + 2 * lane_in_group() + i;
        if (lane_group() == 0 && position < keys) p.scores[query * p.score_stride + position] = score;
      }
    }
  }
}

/// The digits of a key from the highest on.
struct Digit {
  int shift;
  int bits;
};
constexpr int kMostBins = 1 << 11;

/// The highest digit with `wanted` or more scores at it and above it. Takes those above it off `wanted`. One warp.
__device__ uint32_t find_digit(const uint32_t* bins, int32_t count, int32_t& wanted) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kWarpSize, own = count / kWarpSize;
  const int32_t last = count - 1 - lane * own;  // the lowest lane has the highest bins
  int32_t sum = 0;
  for (int32_t i = 0; i < own; ++i)
    sum += static_cast<int32_t>(bins[last - i]);
  const int32_t up_to = warp_sum_up_to(sum);
  const uint32_t reached = __ballot_sync(kWholeWarp, up_to >= wanted);
  const int32_t owner = __ffs(static_cast<int>(reached)) - 1;
  int32_t digit = last, above = up_to - sum;
  if (lane == owner) {
    while (above + static_cast<int32_t>(bins[digit]) < wanted)
      above += static_cast<int32_t>(bins[digit--]);
  }
  wanted -= __shfl_sync(kWholeWarp, above, owner);
  return static_cast<uint32_t>(__shfl_sync(kWholeWarp, digit, owner));
}

__global__ void __launch_bounds__(kSelectThreads) select_keys_kernel(ChoiceParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  __shared__ uint32_t bins[kMostBins];
  __shared__ uint32_t shared_least;
  __shared__ int32_t shared_wanted;
  __shared__ int2 of_warps[kSelectWarps];  ///< larger and equal scores
  begin_kernel(stamps);
  allow_next_kernel();
  const int32_t query = static_cast<int32_t>(blockIdx.x), token = p.first_token + query;
  const int32_t keys = keys_to_choose_from(p, token);
  if (keys == 0) return;
  const float* scores = p.scores + query * p.score_stride;
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const int32_t lane = thread % kWarpSize, warp = thread / kWarpSize;

  uint32_t least = 0;       // the digits so far of the smallest chosen score
  int32_t wanted = p.most;  // of the scores with these digits
  for (const Digit digit : {Digit{21, 11}, Digit{10, 11}, Digit{0, 10}}) {
    for (int32_t i = thread; i < 1 << digit.bits; i += kSelectThreads)
      bins[i] = 0;
    __syncthreads();
    const uint32_t known = digit.shift + digit.bits < 32 ? ~0u << (digit.shift + digit.bits) : 0u;
    for (int32_t position = thread; position < keys; position += kSelectThreads) {
      const uint32_t key = order_key(scores[position]);
      if ((key & known) == least) atomicAdd(bins + ((key >> digit.shift) & ((1u << digit.bits) - 1)), 1u);
    }
    __syncthreads();
    if (warp == 0) {
      int32_t left = wanted;
      const uint32_t found = find_digit(bins, 1 << digit.bits, left);
      if (lane == 0) {
        shared_least = least | found << digit.shift;
        shared_wanted = left;
      }
    }
    __syncthreads();
    least = shared_least;
    wanted = shared_wanted;
  }

  int32_t* chosen = p.chosen + int64_t{token} * p.most;
  int32_t larger_before = 0, equal_before = 0;
  for (int32_t first = 0; first < keys; first += kSelectThreads) {
    const int32_t position = first + thread;
    const uint32_t key = position < keys ? order_key(scores[position]) : 0;
    const bool larger = position < keys && key > least, equal = position < keys && key == least;
    const uint32_t all_larger = __ballot_sync(kWholeWarp, larger),
                   all_equal = __ballot_sync(kWholeWarp, equal);
    if (lane == 0) of_warps[warp] = {__popc(all_larger), __popc(all_equal)};
    __syncthreads();
    const int2 of_lane = of_warps[lane];
    const int32_t larger_up_to = warp_sum_up_to(of_lane.x), equal_up_to = warp_sum_up_to(of_lane.y);
    const uint32_t below = (1u << lane) - 1;
    const int32_t larger_rank =
        larger_before + __shfl_sync(kWholeWarp, larger_up_to - of_lane.x, warp) + __popc(all_larger & below);
    const int32_t equal_rank =
        equal_before + __shfl_sync(kWholeWarp, equal_up_to - of_lane.y, warp) + __popc(all_equal & below);
    if (larger || (equal && equal_rank < wanted)) chosen[larger_rank + min(equal_rank, wanted)] = position;
    larger_before += __shfl_sync(kWholeWarp, larger_up_to, kWarpSize - 1);
    equal_before += __shfl_sync(kWholeWarp, equal_up_to, kWarpSize - 1);
    __syncthreads();  // the numbers of warps are read
  }
}
static_assert(kSelectWarps == kWarpSize);  // a lane reads a warp's numbers

void check_args(const ForwardBatch& batch, const ChooseKeysArgs& args) {
  const int64_t columns = int64_t{args.heads} * args.keys.head_size;
  if (args.heads < 1 || args.most < 1 || columns > kMaxIndexerColumns)
    unsupported("choose_keys", "one or more keys, and queries of 1 to " + std::to_string(kMaxIndexerColumns),
                std::to_string(args.most) + ", and " + std::to_string(columns));
  require_equal("choose_keys: KV heads", 1, args.keys.kv_heads);
  require_equal("choose_keys: rows of q", batch.num_tokens, args.q.rows);
  require_equal("choose_keys: columns of q", columns, args.q.cols);
  require_equal("choose_keys: rows of weights", batch.num_tokens, args.weights.rows);
  require_equal("choose_keys: columns of weights", args.heads, args.weights.cols);
  if (args.weights.dtype != DType::f32)
    unsupported("choose_keys", "weights of f32", name(args.weights.dtype));
}

/// True if the tensor-core kernel takes these arguments.
bool takes_tiles(const ChooseKeysArgs& args) {
  const DType kv = args.keys.dtype;
  const auto addresses = reinterpret_cast<uintptr_t>(args.q.data) | reinterpret_cast<uintptr_t>(args.keys.k);
  return args.keys.head_size == kIndexerSize && args.q.dtype == DType::bf16 && args.q.stride % 8 == 0 &&
         addresses % 16 == 0 && (kv == DType::bf16 || kv == DType::f16);
}

}  // namespace

KeyChoiceOps::KeyChoiceOps(const StepLimits& limits) : scored_keys_(limits.scored_keys), queries_(0) {
  if (scored_keys_ == 0) return;
  const int64_t of_query = int64_t{scored_keys_} * int64_t{sizeof(float)};
  queries_ = static_cast<int32_t>(
      std::clamp(kScoreBytes / of_query, int64_t{1}, int64_t{std::max(1, limits.max_tokens)}));
  scores_ = DeviceBuffer(static_cast<size_t>(queries_ * of_query), "scores of keys");
}

void KeyChoiceOps::choose(Launch& launch, const ForwardBatch& batch, const ChooseKeysArgs& args) const {
  check_args(batch, args);
  const int64_t longest = std::min<int64_t>(scored_keys_, int64_t{batch.max_blocks} * args.keys.block_size);
  if (scored_keys_ == 0)
    unsupported("choose_keys", "a step of the limits that it was prepared for", "scores");
  ChoiceParams params{.q = args.q.data,
                      .q_stride = args.q.stride,
                      .weights = args.weights.f32(),
                      .weight_stride = args.weights.stride,
                      .keys = args.keys.k,
                      .cache = make_kv_slots(args.keys),
                      .positions = batch.positions,
                      .query_start = batch.query_start,
                      .block_table = batch.block_table,
                      .max_blocks = batch.max_blocks,
                      .num_sequences = batch.num_sequences,
                      .first_token = 0,
                      .heads = args.heads,
                      .size = args.keys.head_size,
                      .scale = args.scale,
                      .most = args.most,
                      .scores = scores_.as<float>(),
                      .score_stride = scored_keys_,
                      .chosen = args.chosen};
  const int64_t tiles = (longest + kTileKeys - 1) / kTileKeys;
  for (; params.first_token < batch.num_tokens; params.first_token += queries_) {
    const int32_t queries = std::min(queries_, batch.num_tokens - params.first_token);
    // Blocks go through a query's tiles in turn: there are about eight for each multiprocessor, however long sequences may be.
    const auto of_query = std::clamp<int64_t>(int64_t{8} * launch.num_sms() / queries, 1, tiles);
    const dim3 grid(static_cast<unsigned>(of_query), static_cast<unsigned>(queries));
    const auto score = [&](auto kernel) {
      launch("score_keys", kernel, grid, dim3(kScoreThreads), 0, params);
    };
    if (takes_tiles(args)) {
      args.keys.dtype == DType::bf16 ? score(score_keys_tile_kernel<__nv_bfloat16>)
                                     : score(score_keys_tile_kernel<__half>);
    } else {
      for_type(DTypes<DType::f32, DType::bf16>{}, "choose_keys: q", args.q.dtype, [&](auto q) {
        for_type(DTypes<DType::f32, DType::f16, DType::bf16>{}, "choose_keys: KV cache", args.keys.dtype,
                 [&](auto kv) { score(score_keys_kernel<ElementOf<q>, ElementOf<kv>>); });
      });
    }
    launch("select_keys", select_keys_kernel, static_cast<unsigned>(queries), dim3(kSelectThreads), 0,
           params);
  }
}

}  // namespace minfer::cuda
