#pragma once

#include "kernels/cpu/lanes/lane_kernels.h"
#include "kernels/cpu/lanes/lanes.h"

/// How attention_lanes.h reads the paged cache.
namespace minfer::cpu {
inline namespace MINFER_ISA {

inline int whole_lanes(int size) {
  return (size + kLanes - 1) / kLanes * kLanes;
}

/// Widens `size` elements of two bytes with `load`, and fills the rest of the last lanes with zeros.
template <class Load>
inline void widen_halves(const uint16_t* half, int size, Load load, float* out) {
  const int whole = size / kLanes * kLanes;
  for (int i = 0; i < whole; i += kLanes)
    load(half + i).store(out + i);
  if (whole == size) return;
  uint16_t last[kLanes] = {};
  std::memcpy(last, half + whole, static_cast<size_t>(size - whole) * sizeof(uint16_t));
  load(last).store(out + whole);
}

/// Widens `size` elements of a cache row to f32, and fills up to whole lanes with zeros.
inline void widen_row(const void* row, DType dtype, int size, float* out) {
  const auto* half = static_cast<const uint16_t*>(row);
  if (dtype == DType::bf16) {
    widen_halves(
        half, size, [](const uint16_t* p) { return Lanes::load_bf16(p); }, out);
  } else if (dtype == DType::f16) {
    widen_halves(
        half, size, [](const uint16_t* p) { return Lanes::load_f16(p); }, out);
  } else {
    std::memcpy(out, row, static_cast<size_t>(size) * sizeof(float));
    for (int i = size; i % kLanes != 0; ++i)
      out[i] = 0.0f;
  }
}

/// K or V.
struct CacheRows {
  const void* data;
  int size;  ///< of a row
};

inline int64_t row_stride_bytes(const CacheRows& cache, DType dtype) {
  return int64_t{cache.size} * static_cast<int64_t>(dtype == DType::f32 ? sizeof(float) : sizeof(uint16_t));
}

/// Walks the rows of the tile's KV head from a position on.
class RowWalk {
 public:
  RowWalk(const AttentionTile& tile, const CacheRows& cache, int position)
      : tile_(tile),
        cache_(static_cast<const char*>(cache.data)),
        stride_(row_stride_bytes(cache, tile.kv->dtype)),
        block_(tile.blocks + position / tile.kv->block_size),
        offset_(position % tile.kv->block_size) {}

  const char* next() {
    const char* row = row_of(*block_, offset_);
    if (++offset_ == tile_.kv->block_size) {
      offset_ = 0;
      ++block_;
    }
    return row;
  }
  /// The row of any position.
  const char* at(int position) const {
    const int block_size = tile_.kv->block_size;
    return row_of(tile_.blocks[position / block_size], position % block_size);
  }

 private:
  const char* row_of(int32_t block, int offset) const {
    const KvLayer& kv = *tile_.kv;
    const int64_t head = int64_t{block} * kv.kv_heads + tile_.kv_head;
    return cache_ + (head * kv.block_size + offset) * stride_;
  }

  const AttentionTile& tile_;
  const char* cache_;
  int64_t stride_;
  const int32_t* block_;
  int offset_;
};

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
