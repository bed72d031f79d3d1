#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention_path.h"
#include "kernels/cuda/attention/prefill/attention_query_tile.cuh"
#include "kernels/cuda/device/bulk_copy.cuh"
#include "kernels/cuda/device/wgmma.cuh"

/// The shared memory of attention_prefill_wgmma.cuh, and the warps that fill it.
namespace minfer::cuda {

template <class Kv_, int kHead_, class Params_>
struct WgmmaForm {
  using Kv = Kv_;
  using Params = Params_;
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
  QueryTile tile;                                    ///< no tokens: the end
  SharedBarrier tile_full, query_full, query_empty;  ///< tile and Q are given back together
  SharedBarrier key_full[Form::kStages], key_empty[Form::kStages];
  SharedBarrier value_full[Form::kStages], value_empty[Form::kStages];
};

/// Tiles of 128 keys; one that is empty where a sequence is padding.
__device__ __forceinline__ int32_t key_tiles(const QueryTile& tile) {
  return max(1, (tile.keys() + kKeysOfStage - 1) / kKeysOfStage);
}

/// The first position that a row of the tile sees.
template <class Params>
__device__ __forceinline__ int32_t first_seen(const Params& p,
                                              const QueryTile& tile) requires kHasOptions<Params> {
  return p.options.first_seen(tile.first_position);
}
/// The tile of keys that has it.
template <class Params>
__device__ __forceinline__ int32_t first_key_tile(const Params& p, const QueryTile& tile) {
  return first_seen(p, tile) / kKeysOfStage;
}

/// What the two warps do that bring tiles.
template <class Form>
struct WgmmaProducer {
  using Shared = WgmmaShared<Form>;
  using Ring = RingPosition<Form::kStages>;

  const typename Form::Params& p;
  Shared& shared;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  /// The box of a tile of keys that this lane brings. Boxes that have tokens of the sequence are, those behind them are not.
  __device__ __forceinline__ KeyPlace look_up_box(const QueryTile& tile, int32_t index) const {
    const int32_t* blocks = p.block_table + int64_t{tile.sequence} * p.max_blocks;
    const int32_t key = lane * p.keys_of_box;
    if (index < 0 || key >= kKeysOfStage) return {.block = -1, .row_in_block = 0};
    if constexpr (kHasOptions<typename Form::Params>) {
      const bool is_in_front = index * kKeysOfStage + key + p.keys_of_box <= first_seen(p, tile);
      if (is_in_front) return {.block = p.num_blocks, .row_in_block = 0};  // no such block: zeros
    }
    return look_up(p.cache, blocks, tile.kv_head, index * kKeysOfStage + key, tile.context);
  }

  __device__ __forceinline__ void copy_keys(const CUtensorMap& map, char* to, SharedBarrier& full,
                                            SharedBarrier& empty, uint32_t parity,
                                            const KeyPlace& place) const {
    const int32_t row = place.row(p.cache);
    const int32_t box_bytes = p.keys_of_box * Form::kHead * 2;
    const int boxes = __popc(__ballot_sync(kWholeWarp, row >= 0));
    wait(empty, parity ^ 1);
    if (lane == 0) arrive_expecting(full, boxes * box_bytes);
    __syncwarp();
    if (row >= 0) copy_box(to + lane * box_bytes, map, full, read_often_policy(), 0, 0, 0, row / 8);
  }

  /// `parity`: of the tile's turn.
  __device__ __forceinline__ void hand_over(const QueryTile& tile, const CUtensorMap& query_map,
                                            uint32_t parity) const {
    wait(shared.query_empty, parity ^ 1);
    if (lane == 0) {
      shared.tile = tile;
      arrive(shared.tile_full);
      arrive_expecting(shared.query_full,
                       tile.tokens == 0 ? 0 : Form::kPanels * p.tokens_per_tile * p.group * kPanelRowBytes);
      for (int panel = 0; tile.tokens > 0 && panel < Form::kPanels; ++panel) {
        copy_box(shared.query[panel], query_map, shared.query_full, read_once_policy(), panel * 64,
                 tile.kv_head * p.group, tile.first_token);
      }
    }
    __syncwarp();
  }

  /// Finds the tiles, and brings Q and K. `tile`: the block's first, if there is one.
  __device__ void bring_queries(QueryTile tile, const CUtensorMap& query_map,
                                const CUtensorMap& key_map) const {
    const int32_t tiles = count_query_tiles(p) * p.cache.kv_heads;
    Ring ring;
    const auto copy = [&](const KeyPlace& place) {
      copy_keys(key_map, shared.key[ring.stage], shared.key_full[ring.stage], shared.key_empty[ring.stage],
                ring.parity, place);
      ring.advance();
    };
    uint32_t parity = 0;
    for (; tile.tokens > 0; parity ^= 1) {
      // As many numbers are taken as there are tiles, one for each that was done: the last one sets the counter back.
      uint32_t next = 0;
      if (lane == 0) next = gridDim.x + atomicInc(p.taken_tiles, static_cast<unsigned>(tiles - 1));
      const int32_t last = key_tiles(tile) - 1;
      int32_t end = 0;
      if constexpr (kHasOptions<typename Form::Params>) end = first_key_tile(p, tile);
      KeyPlace place = look_up_box(tile, last - 1);
      copy(look_up_box(tile, last));
      hand_over(tile, query_map, parity);
#pragma unroll 1
      for (int32_t i = last - 1; i >= end; --i) {
        const KeyPlace place_ahead = look_up_box(tile, i - 1);
        copy(place);
        place = place_ahead;
      }
      tile = find_query_tile(p, static_cast<int32_t>(same_in_warp(next)));
    }
    hand_over(tile, query_map, parity);
  }

  __device__ void bring_values(const CUtensorMap& value_map) const {
    Ring ring;
    for (uint32_t parity = 0;; parity ^= 1) {
      wait(shared.tile_full, parity);
      const QueryTile tile = shared.tile;
      __syncwarp();
      if (tile.tokens == 0) break;
      if (lane == 0) arrive(shared.query_empty);
      int32_t i = key_tiles(tile) - 1;
      int32_t end = 0;
      if constexpr (kHasOptions<typename Form::Params>) end = first_key_tile(p, tile);
      KeyPlace place = look_up_box(tile, i);
#pragma unroll 1
      for (; i >= end; --i) {
        const KeyPlace place_ahead = look_up_box(tile, i - 1);
        copy_keys(value_map, shared.value[ring.stage], shared.value_full[ring.stage],
                  shared.value_empty[ring.stage], ring.parity, place);
        ring.advance();
        place = place_ahead;
      }
    }
  }
};

}  // namespace minfer::cuda
