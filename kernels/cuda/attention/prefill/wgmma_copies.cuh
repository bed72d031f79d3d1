#pragma once

#include <type_traits>

#include "kernels/cuda/attention/prefill/attention_query_tile.cuh"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/attention/shared/attention_tiles.cuh"
#include "kernels/cuda/device/tensor_map.h"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"

/// The shared memory of attention_prefill_wgmma.cuh, and the warps that fill it.
namespace minfer::cuda {

/// `Cache_`: the type of the cache. fp8 is widened to f16 on the way.
template <class Cache_, int kHead_, class Params_>
struct WgmmaForm {
  using Cache = Cache_;
  using Params = Params_;
  static constexpr bool kIsFp8 = std::is_same_v<Cache, __nv_fp8_e4m3>;
  using Kv = std::conditional_t<kIsFp8, __half, Cache>;  ///< of the products
  static constexpr int kHead = kHead_;
  static constexpr int kSliceColumns = kHead % 64 == 0 ? 64 : kHead % 32 == 0 ? 32 : 16;
  static constexpr int kSlices = kHead / kSliceColumns;
  static constexpr int kRowBytes = kSliceColumns * 2;  ///< of a slice
  static constexpr BoxLayout kLayout = kRowBytes == 128  ? BoxLayout::swizzled
                                       : kRowBytes == 64 ? BoxLayout::swizzled_64
                                                         : BoxLayout::swizzled_32;
  static constexpr int kKeys = keys_of_stage(kHead, kIsFp8);
  static constexpr int kStages = kHead <= 128 && !kIsFp8 ? 3 : 2;
  static constexpr int kRawStages = kHead <= 128 ? 2 : 1;  ///< of keys and of values in fp8
  static constexpr int kWarpgroups = kQueryRows / 64;
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = kConsumers + 128;
  /// Registers of a thread: in the warpgroup that brings tiles, and in those that multiply.
  static constexpr int kProducerRegisters = 56;
  static constexpr int kConsumerRegisters = 224;
  static constexpr int kQuerySliceBytes = kQueryRows * kRowBytes;
  static constexpr int kKeySliceBytes = 8 * kRowBytes;  ///< of eight keys
  static constexpr int kEightKeysBytes = kSlices * kKeySliceBytes;
  static constexpr int kTileBytes = kKeys / 8 * kEightKeysBytes;
  static constexpr int kRawBytes = kKeys * kHead;
  static_assert(kWarpgroups == 2, "products begin in turns of two warpgroups");
  static_assert(kProducerRegisters + 2 * kConsumerRegisters == 3 * 168, "what 384 threads can have");

  /// Where 16 bytes of a key's row are in a tile.
  static __device__ __forceinline__ int offset(int key, int piece) {
    constexpr int kPieces = kRowBytes / 16;
    return key / 8 * kEightKeysBytes + piece / kPieces * kKeySliceBytes + key % 8 * kRowBytes +
           piece_in_row<kRowBytes>(key, piece % kPieces) * 16;
  }
};

/// Tiles in fp8, before they are widened: [key][head].
template <class Form>
struct RawTiles {
  alignas(128) char tile[Form::kRawStages][Form::kRawBytes];
  SharedBarrier full[Form::kRawStages], empty[Form::kRawStages];
  int32_t is_end[Form::kRawStages];  ///< 1: no tile, but the end behind the last one
};

template <class Form>
struct WgmmaShared {
  struct None {};
  using Raw = std::conditional_t<Form::kIsFp8, RawTiles<Form>, None>;

  alignas(1024) char query[Form::kSlices][Form::kQuerySliceBytes];
  char key[Form::kStages][Form::kTileBytes];
  char value[Form::kStages][Form::kTileBytes];
  Raw raw_key, raw_value;
  QueryTile tile;                                    ///< no tokens: the end
  SharedBarrier tile_full, query_full, query_empty;  ///< tile and Q are released together
  SharedBarrier key_full[Form::kStages], key_empty[Form::kStages];
  SharedBarrier value_full[Form::kStages], value_empty[Form::kStages];
};

/// The number of tiles of keys; one empty tile if a sequence is padding.
template <class Form>
__device__ __forceinline__ int32_t key_tiles(const QueryTile& tile) {
  return max(1, (tile.keys() + Form::kKeys - 1) / Form::kKeys);
}

/// The first position that a row of the tile sees.
template <class Params>
__device__ __forceinline__ int32_t first_seen(const Params& p,
                                              const QueryTile& tile) requires kHasOptions<Params> {
  return p.options.first_seen(tile.first_position);
}
/// The first tile of keys with any key that a row sees.
template <class Form>
__device__ __forceinline__ int32_t first_key_tile(const typename Form::Params& p, const QueryTile& tile) {
  if constexpr (kHasOptions<typename Form::Params>) return first_seen(p, tile) / Form::kKeys;
  return 0;
}

/// The work of the warps that bring tiles: one finds them and copies Q and K, one copies V, and with a cache in fp8 two more widen K and V.
template <class Form>
struct WgmmaProducer {
  using Shared = WgmmaShared<Form>;
  using Ring = RingPosition<Form::kStages>;
  /// The ring that copies fill.
  using CopyRing = RingPosition<Form::kIsFp8 ? Form::kRawStages : Form::kStages>;

  const typename Form::Params& p;
  Shared& shared;
  const int lane = static_cast<int>(threadIdx.x) % 32;

  /// The box of a tile of keys that this lane copies. Boxes with tokens of the sequence are copied, those behind them are not.
  __device__ __forceinline__ KeyRow look_up_box(const QueryTile& tile, int32_t index) const {
    const int32_t* blocks = p.block_table + int64_t{tile.sequence} * p.max_blocks;
    const int32_t key = lane * p.keys_of_box;
    if (index < 0 || key >= Form::kKeys) return {.block = -1, .row_in_block = 0};
    if constexpr (kHasOptions<typename Form::Params>) {
      const bool is_in_front = index * Form::kKeys + key + p.keys_of_box <= first_seen(p, tile);
      if (is_in_front) return {.block = p.num_blocks, .row_in_block = 0};  // no such block: zeros
    }
    return look_up(p.cache, blocks, tile.kv_head, index * Form::kKeys + key, tile.context);
  }

  __device__ __forceinline__ void copy_boxes(const CUtensorMap& map, char* to, SharedBarrier& full,
                                             SharedBarrier& empty, uint32_t parity,
                                             const KeyRow& place) const {
    const int32_t row = place.row(p.cache);
    const int32_t box_bytes =
        p.keys_of_box * Form::kHead * static_cast<int32_t>(sizeof(typename Form::Cache));
    const int boxes = __popc(__ballot_sync(kWholeWarp, row >= 0));
    wait(empty, parity ^ 1);
    if (lane == 0) arrive_expecting(full, boxes * box_bytes);
    __syncwarp();
    if (row < 0) return;
    if constexpr (Form::kIsFp8) {
      copy_box(to + lane * box_bytes, map, full, read_often_policy(), 0, row);
    } else {
      copy_box(to + lane * box_bytes, map, full, read_often_policy(), 0, 0, 0, row / 8);
    }
  }
  __device__ __forceinline__ void copy_keys(const CUtensorMap& map, const CopyRing& ring,
                                            const KeyRow& place) const {
    if constexpr (Form::kIsFp8) {
      auto& raw = shared.raw_key;
      copy_boxes(map, raw.tile[ring.stage], raw.full[ring.stage], raw.empty[ring.stage], ring.parity, place);
    } else {
      copy_boxes(map, shared.key[ring.stage], shared.key_full[ring.stage], shared.key_empty[ring.stage],
                 ring.parity, place);
    }
  }
  __device__ __forceinline__ void copy_values(const CUtensorMap& map, const CopyRing& ring,
                                              const KeyRow& place) const {
    if constexpr (Form::kIsFp8) {
      auto& raw = shared.raw_value;
      copy_boxes(map, raw.tile[ring.stage], raw.full[ring.stage], raw.empty[ring.stage], ring.parity, place);
    } else {
      copy_boxes(map, shared.value[ring.stage], shared.value_full[ring.stage], shared.value_empty[ring.stage],
                 ring.parity, place);
    }
  }

  /// Tells the warp that widens tiles that no more tiles follow.
  template <class Raw>
  __device__ __forceinline__ void end_raw_tiles(Raw& raw, const CopyRing& ring) const {
    if constexpr (Form::kIsFp8) {
      wait(raw.empty[ring.stage], ring.parity ^ 1);
      if (lane != 0) return;
      raw.is_end[ring.stage] = 1;
      arrive(raw.full[ring.stage]);
    }
  }

  /// `parity`: of the tile's turn.
  __device__ __forceinline__ void hand_over(const QueryTile& tile, const CUtensorMap& query_map,
                                            uint32_t parity) const {
    wait(shared.query_empty, parity ^ 1);
    if (lane == 0) {
      shared.tile = tile;
      arrive(shared.tile_full);
      arrive_expecting(shared.query_full,
                       tile.tokens == 0 ? 0 : p.tokens_per_tile * p.group * Form::kHead * 2);
      for (int slice = 0; tile.tokens > 0 && slice < Form::kSlices; ++slice) {
        copy_box(shared.query[slice], query_map, shared.query_full, read_once_policy(),
                 slice * Form::kSliceColumns, tile.kv_head * p.group, tile.first_token);
      }
    }
    __syncwarp();
  }

  /// Finds the tiles, and brings Q and K. `tile`: the block's first tile, if there is one.
  __device__ void bring_queries(QueryTile tile, const CUtensorMap& query_map,
                                const CUtensorMap& key_map) const {
    const int32_t tiles = count_query_tiles(p) * p.cache.kv_heads;
    CopyRing ring;
    const auto copy = [&](const KeyRow& place) {
      copy_keys(key_map, ring, place);
      ring.advance();
    };
    uint32_t parity = 0;
    for (; tile.tokens > 0; parity ^= 1) {
      // Each tile that is done takes one number, so there are as many numbers as tiles: the last one resets the counter.
      uint32_t next = 0;
      if (lane == 0) next = gridDim.x + atomicInc(p.taken_tiles, static_cast<unsigned>(tiles - 1));
      const int32_t last = key_tiles<Form>(tile) - 1, end = first_key_tile<Form>(p, tile);
      KeyRow place = look_up_box(tile, last - 1);
      copy(look_up_box(tile, last));
      hand_over(tile, query_map, parity);
#pragma unroll 1
      for (int32_t i = last - 1; i >= end; --i) {
        const KeyRow place_ahead = look_up_box(tile, i - 1);
        copy(place);
        place = place_ahead;
      }
      tile = find_query_tile(p, static_cast<int32_t>(same_in_warp(next)));
    }
    hand_over(tile, query_map, parity);
    end_raw_tiles(shared.raw_key, ring);
  }

  __device__ void bring_values(const CUtensorMap& value_map) const {
    CopyRing ring;
    for (uint32_t parity = 0;; parity ^= 1) {
      wait(shared.tile_full, parity);
      const QueryTile tile = shared.tile;
      __syncwarp();
      if (tile.tokens == 0) break;
      if (lane == 0) arrive(shared.query_empty);
      int32_t i = key_tiles<Form>(tile) - 1;
      const int32_t end = first_key_tile<Form>(p, tile);
      KeyRow place = look_up_box(tile, i);
#pragma unroll 1
      for (; i >= end; --i) {
        const KeyRow place_ahead = look_up_box(tile, i - 1);
        copy_values(value_map, ring, place);
        ring.advance();
        place = place_ahead;
      }
    }
    end_raw_tiles(shared.raw_value, ring);
  }

  /// Widens a tile of fp8 to f16, exactly. A lane has one of eight keys, and pieces of 16 codes of its row that are 64 codes apart. With
  /// heads of 128 and 256, odd keys exchange neighbouring pieces, so that eight lanes load from eight bank groups and store to eight.
  __device__ __forceinline__ void widen(const char* raw, char* tile) const {
    constexpr int kPieces = Form::kHead / 16;
    constexpr int kOfLane = (kPieces + 3) / 4;
    constexpr int kGroups =
        kOfLane > 2 ? 1 : 4 / kOfLane;  // of eight keys, all loaded before the first is stored
    constexpr int kColumnsBytes =
        Form::kKeySliceBytes * (64 / Form::kSliceColumns);  // to the next 64 columns
    const int key = lane / 4, piece = lane % 4;
    const int exchanged = Form::kHead % 128 == 0 ? key % 2 : 0;
    const char* from = raw + key * Form::kHead + piece * 16;
    char* const to[2] = {tile + Form::offset(key, 2 * piece), tile + Form::offset(key, 2 * piece + 1)};
    const auto has = [&](int i) { return piece + 4 * i < kPieces; };
#pragma unroll 1
    for (int group = 0; group < Form::kKeys / 8; group += kGroups) {
      uint4 codes[kGroups][kOfLane];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
          const char* at = from + (group + g) * 8 * Form::kHead + (i ^ exchanged) * 64;
          if (has(i)) codes[g][i] = *reinterpret_cast<const uint4*>(at);
        }
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int i = 0; i < kOfLane; ++i) {
          if (!has(i)) continue;
          const uint4& code = codes[g][i];
          const int at = (group + g) * Form::kEightKeysBytes + (i ^ exchanged) * kColumnsBytes;
          *reinterpret_cast<uint4*>(to[0] + at) = {widen_low(code.x), widen_high(code.x), widen_low(code.y),
                                                   widen_high(code.y)};
          *reinterpret_cast<uint4*>(to[1] + at) = {widen_low(code.z), widen_high(code.z), widen_low(code.w),
                                                   widen_high(code.w)};
        }
      }
    }
  }

  /// With a cache in fp8: widens K or V, tile after tile, into the stages that are multiplied. It need not know which tiles they are.
  template <class Raw>
  __device__ void widen_tiles(Raw& raw, char (&tiles)[Form::kStages][Form::kTileBytes],
                              SharedBarrier (&full)[Form::kStages],
                              SharedBarrier (&empty)[Form::kStages]) const {
    Ring ring;
    for (CopyRing from;; from.advance(), ring.advance()) {
      wait(raw.full[from.stage], from.parity);
      if (raw.is_end[from.stage] != 0) break;
      wait(empty[ring.stage], ring.parity ^ 1);
      widen(raw.tile[from.stage], tiles[ring.stage]);
      publish_copies();
      __syncwarp();
      if (lane == 0) {
        arrive(full[ring.stage]);
        arrive(raw.empty[from.stage]);
      }
      __syncwarp();
    }
  }
};

}  // namespace minfer::cuda
