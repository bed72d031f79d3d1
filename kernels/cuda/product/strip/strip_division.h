#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {

/// Strips of a matrix, and the bytes of one.
struct StripLoad {
  int64_t strips;
  int64_t strip_bytes;

  /// Bytes of the block that has most strips.
  constexpr int64_t most_bytes(int64_t blocks) const { return (strips + blocks - 1) / blocks * strip_bytes; }
};

/// The load of a weight that is kept in tiles.
constexpr StripLoad strip_load(DType type, int64_t rows, int64_t cols) {
  return {strips_of(rows), tiles_of(cols) * tile_bytes(type)};
}

/// The number of `blocks` (2 or more) that take strips of `first`; the others take those of `second`. The block
/// with the most bytes has as few as possible. If several numbers give this, the largest is returned.
constexpr int32_t blocks_of_first(const StripLoad& first, const StripLoad& second, int32_t blocks) {
  int32_t best = 1;
  int64_t fewest = INT64_MAX;
  for (int32_t some = 1; some < blocks; ++some) {
    const int64_t most = std::max(first.most_bytes(some), second.most_bytes(blocks - some));
    if (most > fewest) continue;
    fewest = most;
    best = some;
  }
  return best;
}

/// Divides K and strips for tile_strip.cuh: over the blocks of a cluster, then over the warps of a set. Sets
/// and clusters take strips in turn.
struct TileStripDivision {
  int32_t splits;    ///< blocks of a cluster
  int32_t chunks;    ///< the most chunks of 256 columns of a block
  int32_t warps;     ///< of a set
  int32_t sets;      ///< of a block
  int32_t clusters;  ///< each with at least one strip
};

/// Clusters of `blocks` blocks, one block a multiprocessor, that run at a time. Each lies within one part of
/// the chip. An H200 has eight parts with 14 to 18 multiprocessors. The multiprocessors that do not fill a
/// cluster stay idle, on average half a cluster in each part (30 clusters of four were measured to fit).
constexpr int32_t clusters_at_a_time(int32_t blocks, int32_t num_sms) {
  constexpr int32_t kParts = 8;
  if (blocks <= 2) return num_sms / blocks;
  return std::max((num_sms - kParts * (blocks - 1) / 2) / blocks, 1);
}

/// A chunk for each warp, if there are clusters; otherwise `most_warps` warps of a block take all chunks in turn.
constexpr TileStripDivision tile_strip_division(int64_t strips, int64_t chunks, int32_t most_warps,
                                                int32_t num_sms, bool has_clusters) {
  constexpr int64_t kMostSplits = 8;  // the largest cluster that every GPU supports
  const auto divided = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const int64_t blocks = has_clusters ? std::min(divided(chunks, most_warps), kMostSplits) : 1;
  TileStripDivision division{};
  division.chunks = static_cast<int32_t>(divided(chunks, blocks));
  division.splits = static_cast<int32_t>(divided(chunks, division.chunks));
  division.warps = std::min(division.chunks, most_warps);
  division.sets = division.splits > 1 ? 1 : most_warps / division.warps;
  const int32_t room = clusters_at_a_time(division.splits, num_sms);
  division.clusters = static_cast<int32_t>(std::min<int64_t>(strips, room));
  return division;
}

}  // namespace minfer::cuda
