#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention/attention_path.h"
#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/prefill/attention_query_tile.cuh"
#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/fp8_group.cuh"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/device/wgmma.cuh"

/// Causal attention of sequences that bring any number of tokens, for a cache in bf16 or f16 on Hopper: the same
/// operation, tensors and tiles as attention_prefill.cuh, by warpgroup products, after FlashAttention-3 (Shah et al. 2024).
///
/// Blocks stay: each takes one tile of 128 rows after the other, those with the most keys first, until none is left. A warp brings Q and
/// rings of K and V by TMA, 128 keys a stage, as many of the tile's cache blocks at a time as lanes have one; it is ahead by all stages,
/// across tiles too. Two warpgroups multiply 64 rows each. A tile's keys are taken from its last ones, which alone need a mask, to its
/// first. Two things overlap: the softmax of 128 keys with the products of the 128 before (a warpgroup begins Q K^T of the next keys
/// and weights V of the last before it waits for either), and the softmax of one warpgroup with the products of the other, which take
/// turns at beginning products. Scores, weights and results stay in registers.
///
/// In shared memory a tile of keys is [key / 8][head_size / 64][8][64], as a box of the tensor map [rows / 8][head_size / 64][8][64] of
/// the whole cache comes, rows of 128 bytes swizzled. So blocks of the cache are a multiple of eight slots, and divide 128 or are
/// divided by it.
///
/// What lies in the cache behind a sequence's last token may be NaN: scores of it are replaced, values become zeros.
///
/// Shared memory: Q and three stages of K and V, 224 KiB for heads of 128.
namespace minfer::cuda {

template <class Kv_, int kHead_>
struct WgmmaForm {
  using Kv = Kv_;
  static constexpr int kHead = kHead_;
  static constexpr int kPanels = kHead / 64;
  static constexpr int kStages = 3;
  static constexpr int kWarpgroups = kQueryRows / 64;
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kQueryPanelBytes = kQueryRows * kPanelRowBytes;
  static constexpr int kEightKeysBytes = kPanels * 8 * kPanelRowBytes;
  static constexpr int kTileBytes = kKeysOfStage / 8 * kEightKeysBytes;
  static_assert(kWarpgroups == 2, "products begin in turns of two warpgroups");
};

template <class Form>
struct WgmmaShared {
  alignas(1024) char query[Form::kPanels][Form::kQueryPanelBytes];
  char key[Form::kStages][Form::kTileBytes];
  char value[Form::kStages][Form::kTileBytes];
  QueryTile tile;  ///< whose Q is there; read behind query_full, no tokens at the end
  SharedBarrier query_full, query_empty;
  SharedBarrier key_full[Form::kStages], key_empty[Form::kStages];
  SharedBarrier value_full[Form::kStages], value_empty[Form::kStages];
};

/// Tiles of 128 keys; one that is empty where a sequence is padding.
__device__ __forceinline__ int32_t key_tiles(const QueryTile& tile) {
  return max(1, (tile.keys() + kKeysOfStage - 1) / kKeysOfStage);
}

/// A warp that brings the tiles of a block.
template <class Form>
struct WgmmaProducer {
  using Shared = WgmmaShared<Form>;
  using Ring = RingPosition<Form::kStages>;

  const PrefillParams& p;
  const CUtensorMap& query_map;
  const CUtensorMap& key_map;
  const CUtensorMap& value_map;
  Shared& shared;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  /// The box of a tile of keys that this lane brings. Boxes within the sequence's tokens are, those behind them are not.
  __device__ __forceinline__ KeyPlace look_up_box(const QueryTile& tile, int32_t index) const {
    const int32_t* blocks = p.block_table + int64_t{tile.sequence} * p.max_blocks;
    const int32_t key = lane * p.keys_of_box;
    const int32_t end = index >= 0 && key < kKeysOfStage ? tile.context : 0;
    return look_up(p.cache, blocks, tile.kv_head, index * kKeysOfStage + key, end);
  }

  __device__ __forceinline__ void copy_keys(const CUtensorMap& map, char* to, SharedBarrier& full,
                                            SharedBarrier& empty, Ring& ring, const KeyPlace& place) const {
    const int32_t row = place.row(p.cache);
    const int32_t box_bytes = p.keys_of_box * Form::kHead * 2;
    const int boxes = __popc(__ballot_sync(kWholeWarp, row >= 0));
    wait(empty, ring.parity ^ 1);
    if (lane == 0) arrive_expecting(full, boxes * box_bytes);
    __syncwarp();
    if (row >= 0) copy_box(to + lane * box_bytes, map, full, read_often_policy(), 0, 0, 0, row / 8);
    ring.advance();
  }
  __device__ __forceinline__ void copy_k(Ring& ring, const KeyPlace& place) const {
    const int stage = ring.stage;
    copy_keys(key_map, shared.key[stage], shared.key_full[stage], shared.key_empty[stage], ring, place);
  }
  __device__ __forceinline__ void copy_v(Ring& ring, const KeyPlace& place) const {
    const int stage = ring.stage;
    copy_keys(value_map, shared.value[stage], shared.value_full[stage], shared.value_empty[stage], ring,
              place);
  }

  /// `parity`: of the tile's turn.
  __device__ __forceinline__ void hand_over(const QueryTile& tile, uint32_t parity) const {
    wait(shared.query_empty, parity ^ 1);
    if (lane != 0) return;
    shared.tile = tile;
    if (tile.tokens == 0) return arrive(shared.query_full);
    arrive_expecting(shared.query_full, Form::kPanels * p.tokens_per_tile * p.group * kPanelRowBytes);
    for (int panel = 0; panel < Form::kPanels; ++panel)
      copy_box(shared.query[panel], query_map, shared.query_full, read_once_policy(), panel * 64,
               tile.kv_head * p.group, tile.first_token);
  }

  /// `tile`: the block's first, if there is one.
  __device__ void run(QueryTile tile) const {
    const int32_t tiles = count_query_tiles(p) * p.cache.kv_heads;
    Ring keys, values;
    uint32_t parity = 0;
    for (; tile.tokens > 0; parity ^= 1) {
      // As many numbers are taken as there are tiles, one for each that was done: the last one sets the counter back.
      uint32_t next = 0;
      if (lane == 0) next = gridDim.x + atomicInc(p.taken_tiles, static_cast<unsigned>(tiles - 1));
      const int32_t last = key_tiles(tile) - 1;
      KeyPlace place = look_up_box(tile, last), place_below = look_up_box(tile, last - 1);
      copy_k(keys, place);
      hand_over(tile, parity);
#pragma unroll 1
      for (int32_t i = last; i >= 0; --i) {
        const KeyPlace place_ahead = look_up_box(tile, i - 2);
        if (i > 0) copy_k(keys, place_below);
        copy_v(values, place);
        place = place_below;
        place_below = place_ahead;
      }
      tile = find_query_tile(p, static_cast<int32_t>(same_in_warp(next)));
    }
    hand_over(tile, parity);
  }
};

/// A warpgroup's 64 rows of a tile: a lane of a warp has rows lane / 4 and + 8 of the warp's 16.
template <class Form>
struct WgmmaConsumer {
  using Shared = WgmmaShared<Form>;
  using Kv = typename Form::Kv;
  using Ring = RingPosition<Form::kStages>;
  using Scores = float[kKeysOfStage / 2];
  using Weights = uint32_t[kKeysOfStage / 4];
  using Values = float[Form::kHead / 2];
  static constexpr bool kIsF16 = std::is_same_v<Kv, __half>;
  static constexpr int kTurnBarrier = 1;   ///< of the first warpgroup, and behind it of the second
  static constexpr int kGroupBarrier = 3;  ///< of a warpgroup alone

  struct Softmax {
    float max[2];
    float sum[2];
  };

  const PrefillParams& p;
  Shared& shared;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  __device__ __forceinline__ int row_of_lane(int half) const { return warp * 16 + 8 * half + lane / 4; }
  __device__ __forceinline__ void release(SharedBarrier& barrier) const {
    if (lane == 0) arrive(barrier);
  }
  /// Products of the two warpgroups begin in turns, so that one multiplies while the other makes weights.
  __device__ __forceinline__ void wait_for_turn() const {
    barrier_of(kTurnBarrier + warpgroup, Form::kConsumers);
  }
  __device__ __forceinline__ void give_turn() const {
    arrive_at(kTurnBarrier + (warpgroup ^ 1), Form::kConsumers);
  }
  /// What the warpgroup's threads wrote is there for its products.
  __device__ __forceinline__ void publish_to_group() const {
    publish_copies();
    barrier_of(kGroupBarrier + warpgroup, 128);
  }

  /// Of a cache in f16: the warpgroup's rows of Q from bf16.
  __device__ __forceinline__ void convert_query() const {
    constexpr int kPieces = 64 * kPanelRowBytes / 16;
    for (int panel = 0; panel < Form::kPanels; ++panel) {
      auto* rows = reinterpret_cast<uint4*>(shared.query[panel]) + warpgroup * kPieces;
#pragma unroll 2
      for (int i = static_cast<int>(threadIdx.x) % 128; i < kPieces; i += 128) {
        const uint4 dims = rows[i];
        rows[i] = {from_bf16_pair<Kv>(dims.x), from_bf16_pair<Kv>(dims.y), from_bf16_pair<Kv>(dims.z),
                   from_bf16_pair<Kv>(dims.w)};
      }
    }
    publish_to_group();
  }

  /// Zeros the values of a stage from key `first` on. Both warpgroups do, and each waits for its own threads.
  __device__ __forceinline__ void clear_values(int stage, int32_t first) const {
    constexpr int kPieces = kPanelRowBytes / 16;
    for (int panel = 0; panel < Form::kPanels; ++panel) {
#pragma unroll 1
      for (int i = first * kPieces + static_cast<int>(threadIdx.x) % 128; i < kKeysOfStage * kPieces;
           i += 128) {
        const int key = i / kPieces;
        char* row = shared.value[stage] + key / 8 * Form::kEightKeysBytes + panel * 8 * kPanelRowBytes +
                    key % 8 * kPanelRowBytes;
        reinterpret_cast<uint4*>(row)[i % kPieces] = {};
      }
    }
    publish_to_group();
  }

  __device__ __forceinline__ void begin_scores(int stage, Scores& score) const {
    const uint32_t query = same_in_warp(shared_address(shared.query[0]) + warpgroup * 64 * kPanelRowBytes);
    const uint32_t key = same_in_warp(shared_address(shared.key[stage]));
    const uint64_t rows = panel_operand(query), keys = panel_operand(key, 0, Form::kEightKeysBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < Form::kHead / 16; ++step) {
      const int panel = step / 4, bytes = step % 4 * 32;
      const uint64_t a = advanced(rows, panel * Form::kQueryPanelBytes + bytes);
      const uint64_t b = advanced(keys, panel * 8 * kPanelRowBytes + bytes);
      if constexpr (kIsF16) {
        multiply_panels_f16(score, a, b, step > 0);
      } else {
        multiply_panels(score, a, b, step > 0);
      }
    }
    commit_products();
  }

  __device__ __forceinline__ void begin_values(int stage, const Weights& weight, Values& value) const {
    const uint32_t at = same_in_warp(shared_address(shared.value[stage]));
    const uint64_t values = panel_operand(at, 8 * kPanelRowBytes, Form::kEightKeysBytes);
    begin_products();
#pragma unroll
    for (int step = 0; step < kKeysOfStage / 16; ++step) {
      const uint64_t b = advanced(values, step * 2 * Form::kEightKeysBytes);
      if constexpr (kIsF16) {
        multiply_rows_f16(value, weight + 4 * step, b);
      } else {
        multiply_rows(value, weight + 4 * step, b);
      }
    }
    commit_products();
  }

  __device__ __forceinline__ void mask(const QueryTile& tile, int32_t first_key, Scores& score) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t allowed = tile.first_position + row_of_lane(half) / p.group - first_key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kKeysOfStage / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + i > allowed) score[4 * n + 2 * half + i] = -INFINITY;
        }
      }
    }
  }

  /// Turns scores into weights relative to the largest score of each row so far. `factor`: what the results
  /// before are worth now.
  __device__ __forceinline__ void weigh(Scores& score, Softmax& softmax, float (&factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = softmax.max[half];
#pragma unroll
      for (int n = 0; n < kKeysOfStage / 8; ++n)
        max = fmaxf(max, fmaxf(score[4 * n + 2 * half], score[4 * n + 2 * half + 1]));
      max = group_max(max);
      const float base = max == -INFINITY ? 0.0f : max * p.scale_log2;
      factor[half] = exp2_approx(softmax.max[half] * p.scale_log2 - base);
      softmax.max[half] = max;
      softmax.sum[half] *= factor[half];
#pragma unroll
      for (int n = 0; n < kKeysOfStage / 8; ++n) {
#pragma unroll
        for (int i = 4 * n + 2 * half; i < 4 * n + 2 * half + 2; ++i) {
          score[i] = exp2_approx(score[i] * p.scale_log2 - base);
        }
        softmax.sum[half] += score[4 * n + 2 * half] + score[4 * n + 2 * half + 1];
      }
    }
  }

  static __device__ __forceinline__ void rescale(Values& value, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < Form::kHead / 2; ++i)
      value[i] *= factor[i / 2 % 2];
  }

  /// A lane's scores are in the order of a product's first operand.
  static __device__ __forceinline__ void round_weights(const Scores& score, Weights& weight) {
#pragma unroll
    for (int i = 0; i < kKeysOfStage / 4; ++i)
      weight[i] = pack<Kv>(score[2 * i], score[2 * i + 1]);
  }

  /// Lane t of a group gives word i to lane i, as that one's word t.
  __device__ __forceinline__ void transpose_words(uint32_t (&word)[4]) const {
#pragma unroll
    for (int distance = 1; distance < 4; distance *= 2) {
      const bool is_upper = (lane & distance) != 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((i & distance) != 0) continue;
        uint32_t &lower = word[i], &upper = word[i + distance];
        const uint32_t other = __shfl_xor_sync(kWholeWarp, is_upper ? lower : upper, distance);
        lower = is_upper ? other : lower;
        upper = is_upper ? upper : other;
      }
    }
  }

  /// Writes a lane's row, of which each lane of its group has a quarter.
  __device__ __forceinline__ void store_row(const QueryTile& tile, int row, float (&value)[Form::kHead / 4],
                                            float inverse) const {
    const bool valid = row < tile.rows(p);
#pragma unroll
    for (float& v : value)
      v *= inverse;
    if constexpr (Form::kHead == kFp8Columns) {
      if (p.fp8_out.codes != nullptr) {
        float largest = 0.0f;
#pragma unroll
        for (const float v : value)
          largest = fmaxf(largest, fabsf(v));
        const Fp8Scale scale(group_max(largest));
        const int64_t token = tile.first_token + row / p.group;
        const int32_t head = tile.kv_head * p.group + row % p.group;
#pragma unroll
        for (int first = 0; first < Form::kHead / 16;
             first += 4) {  // of 16 columns, of which a lane has four codes
          uint32_t word[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float* four = value + 4 * (first + i);
            word[i] = e4m3_codes(make_float4(four[0], four[2], four[1], four[3]), scale.inverse);
          }
          transpose_words(word);
          if (valid)
            *reinterpret_cast<uint4*>(p.fp8_out.codes + token * p.fp8_out.cols + head * kFp8Columns +
                                      16 * (first + lane % 4)) = {word[0], word[1], word[2], word[3]};
        }
        if (valid && lane % 4 == 0)
          p.fp8_out.scales[head * int64_t{p.fp8_out.scale_stride} + token] = scale.bits;
        return;
      }
    }
    auto* to = static_cast<__nv_bfloat16*>(p.out) + tile.head_of_row(p, row, p.out_stride, Form::kHead);
#pragma unroll
    for (int first = 0; first < Form::kHead / 8; first += 4) {  // of eight columns, of which a lane has two
      uint32_t word[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        word[i] = pack<__nv_bfloat16>(value[2 * (first + i)], value[2 * (first + i) + 1]);
      transpose_words(word);
      if (valid)
        *reinterpret_cast<uint4*>(to + 8 * (first + lane % 4)) = {word[0], word[1], word[2], word[3]};
    }
  }

  __device__ __forceinline__ void store(const QueryTile& tile, const Softmax& softmax,
                                        const Values& value) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = group_sum(softmax.sum[half]);
      float of_row[Form::kHead / 4];
#pragma unroll
      for (int n = 0; n < Form::kHead / 8; ++n) {
        of_row[2 * n] = value[4 * n + 2 * half];
        of_row[2 * n + 1] = value[4 * n + 2 * half + 1];
      }
      store_row(tile, row_of_lane(half), of_row, sum != 0.0f ? 1.0f / sum : 0.0f);
    }
  }

  __device__ __forceinline__ void attend(const QueryTile& tile, Ring& ring) const {
    const int32_t last = key_tiles(tile) - 1;
    Values value = {};
    Softmax softmax{{-INFINITY, -INFINITY}, {}};
    Scores score;
    Weights weight;
    float factor[2];
    wait(shared.key_full[ring.stage], ring.parity);
    begin_scores(ring.stage, score);
    wait_products<0>();
    hold(score);
    release(shared.key_empty[ring.stage]);
    mask(tile, last * kKeysOfStage, score);
    weigh(score, softmax, factor);
    round_weights(score, weight);
    if ((last + 1) * kKeysOfStage > tile.context) {
      wait(shared.value_full[ring.stage], ring.parity);
      clear_values(ring.stage, tile.context - last * kKeysOfStage);
    }
    Ring before = ring;
    ring.advance();
    if (last > 0) wait(shared.key_full[ring.stage], ring.parity);
#pragma unroll 1
    for (int32_t i = last - 1; i >= 0; --i) {
      wait_for_turn();
      hold(value);
      hold(weight);
      begin_scores(ring.stage, score);
      wait(shared.value_full[before.stage], before.parity);
      begin_values(before.stage, weight, value);
      give_turn();
      wait_products<1>();
      hold(score);
      release(shared.key_empty[ring.stage]);
      if ((i + 1) * kKeysOfStage > tile.first_position + 1) mask(tile, i * kKeysOfStage, score);
      weigh(score, softmax, factor);
      hold(score);
      Ring next = ring;
      next.advance();
      // Stands here because ptxas moves a wait for products up to the branch before it, and weights are to be made meanwhile.
      if (i > 0) wait(shared.key_full[next.stage], next.parity);
      wait_products<0>();
      hold(value);
      hold(weight);
      release(shared.value_empty[before.stage]);
      if (__any_sync(kWholeWarp, factor[0] != 1.0f || factor[1] != 1.0f)) rescale(value, factor);
      round_weights(score, weight);
      before = ring;
      ring = next;
    }
    release(shared.query_empty);
    wait(shared.value_full[before.stage], before.parity);
    hold(value);
    hold(weight);
    begin_values(before.stage, weight, value);
    wait_products<0>();
    hold(value);
    hold(weight);
    release(shared.value_empty[before.stage]);
    store(tile, softmax, value);
  }

  __device__ void run() const {
    if (warpgroup == 1) give_turn();
    Ring ring;
    for (uint32_t parity = 0;; parity ^= 1) {
      wait(shared.query_full, parity);
      const QueryTile tile = shared.tile;
      if (tile.tokens == 0) break;
      if constexpr (kIsF16) convert_query();
      attend(tile, ring);
    }
    if (warpgroup == 0) wait_for_turn();  // the last one, which nobody took
  }
};

template <class Form>
__global__ void __launch_bounds__(Form::kThreads, 1)
    attention_prefill_wgmma_kernel(const __grid_constant__ PrefillParams p,
                                   const __grid_constant__ CUtensorMap query_map,
                                   const __grid_constant__ CUtensorMap key_map,
                                   const __grid_constant__ CUtensorMap value_map, Stamps stamps) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const EndStamp end_stamp(stamps);
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<WgmmaShared<Form>*>(shared_bytes);
  if (threadIdx.x == Form::kConsumers) {
    prefetch_map(query_map);
    prefetch_map(key_map);
    prefetch_map(value_map);
    make_barrier(shared.query_full, 1);
    make_barrier(shared.query_empty, Form::kConsumers / 32);
    for (int stage = 0; stage < Form::kStages; ++stage) {
      make_barrier(shared.key_full[stage], 1);
      make_barrier(shared.key_empty[stage], Form::kConsumers / 32);
      make_barrier(shared.value_full[stage], 1);
      make_barrier(shared.value_empty[stage], Form::kConsumers / 32);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= Form::kConsumers) {
    keep_registers<56>();
    if (threadIdx.x < Form::kConsumers + 32) {
      const QueryTile first = find_query_tile(p, static_cast<int32_t>(blockIdx.x));
      begin_kernel({});
      allow_next_kernel();
      WgmmaProducer<Form>{p, query_map, key_map, value_map, shared}.run(first);
    } else {
      begin_kernel({});
      allow_next_kernel();
    }
  } else {
    take_registers<224>();
    begin_kernel(stamps);
    allow_next_kernel();
    WgmmaConsumer<Form>{p, shared}.run();
  }
#else
  __trap();  // chosen on compute capability 9.0 alone, for which sm_90a is built
#endif
}

/// The whole cache as boxes of p.keys_of_box keys of a head, see above.
template <class Form>
CUtensorMap cache_map(const void* data, const PrefillParams& p) {
  constexpr int64_t kRowBytes = Form::kHead * 2;
  const int64_t rows = int64_t{p.num_blocks} * p.cache.kv_heads * p.cache.block_size;
  const TensorDimension dimensions[] = {{64, 2, 64},
                                        {8, kRowBytes, 8},
                                        {Form::kPanels, kPanelRowBytes, Form::kPanels},
                                        {rows / 8, 8 * kRowBytes, p.keys_of_box / 8}};
  return tensor_map(data, dimensions);
}

template <class Form>
void launch_wgmma_form(Launch& launch, const PrefillParams& p) {
  static_assert(sizeof(WgmmaShared<Form>) <= kWgmmaSharedBytes);
  const TensorDimension query[] = {{Form::kHead, 2, 64},
                                   {p.cache.kv_heads * p.group, Form::kHead * 2, p.group},
                                   {p.num_tokens, p.qkv_stride * 2, p.tokens_per_tile}};
  const int32_t blocks = std::min(p.max_tiles * p.cache.kv_heads, launch.num_sms());
  launch("attention", attention_prefill_wgmma_kernel<Form>, dim3(static_cast<unsigned>(blocks)),
         dim3(Form::kThreads), sizeof(WgmmaShared<Form>), p, tensor_map(p.qkv, query),
         cache_map<Form>(p.k, p), cache_map<Form>(p.v, p));
}

template <class Kv>
void attention_prefill_wgmma(Launch& launch, const PrefillParams& params, int32_t head_size) {
  if (head_size == 64) return launch_wgmma_form<WgmmaForm<Kv, 64>>(launch, params);
  if (head_size == 128) return launch_wgmma_form<WgmmaForm<Kv, 128>>(launch, params);
  unsupported("attention", "a head size of 64 or 128", std::to_string(head_size));
}

}  // namespace minfer::cuda
