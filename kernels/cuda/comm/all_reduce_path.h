#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/backend.h"

namespace minfer::cuda {

/// How an all-reduce is computed. The first three use memory that the GPUs see of each other.
enum class AllReducePath : uint8_t {
  lines,     ///< one shot: every rank sends its part to all others, each 4 bytes with a flag: no barrier
  chunks,    ///< one shot with a flag a chunk of rows: half the bytes of `lines`, and one more fence
  two_shot,  ///< each chunk is summed by one rank, which sends the sums to all
  nccl,      ///< ncclAllReduce, then a kernel that adds the residual and norms
};

constexpr std::string_view name(AllReducePath path) {
  constexpr std::string_view kNames[]{"lines", "chunks", "two_shot", "nccl"};
  return kNames[static_cast<size_t>(path)];
}

/// Where one path becomes faster than another, in bytes of a rank's part.
struct AllReduceCrossover {
  int64_t lines_up_to = 0;
  int64_t nccl_from = std::numeric_limits<int64_t>::max();
};

/// The most bytes of a part for which the lines of a receiver have room.
inline constexpr int64_t kMostLineBytes = int64_t{512} << 10;

/// The crossover before anything is measured. A flag with each 4 bytes costs as much as a fence (some 1.5 us)
/// when a rank sends about half a megabyte.
constexpr AllReduceCrossover default_crossover(int32_t ranks) {
  return {.lines_up_to = (int64_t{256} << 10) / (ranks - 1)};
}

/// The path for `rows` x `hidden` elements of `element_bytes` bytes: the same on all ranks, since all arguments
/// are. With two ranks, one shot sends the fewest bytes over the link; with more, two shots do.
constexpr AllReducePath all_reduce_path(int64_t rows, int64_t hidden, int64_t element_bytes, int32_t ranks,
                                        AllReduceChoice choice, const AllReduceCrossover& crossover) {
  constexpr int64_t kVector = 8;  // elements; rows are padded to whole vectors
  const int64_t bytes = rows * hidden * element_bytes;
  const int64_t padded_bytes = rows * ((hidden + kVector - 1) / kVector * kVector) * element_bytes;
  if (choice == AllReduceChoice::nccl) return AllReducePath::nccl;
  if (choice == AllReduceChoice::automatic && bytes >= crossover.nccl_from) return AllReducePath::nccl;
  if (bytes <= crossover.lines_up_to && padded_bytes <= kMostLineBytes) return AllReducePath::lines;
  return ranks > 2 ? AllReducePath::two_shot : AllReducePath::chunks;
}

/// Microseconds of an all-reduce of bf16 parts with its norm, by each path.
struct AllReduceTable {
  static constexpr int32_t kMostSizes = 7;
  struct Size {
    int64_t bytes = 0;
    float lines_us = 0.0f;  ///< 0: too large for lines
    float large_us = 0.0f;  ///< chunks or two_shot
    float nccl_us = 0.0f;
  };
  std::array<Size, kMostSizes> sizes{};
  int32_t count = 0;
};

/// Lines serve all sizes below the first at which they are slower; NCCL serves all sizes from the first on from which it is always faster.
inline AllReduceCrossover crossover_of(const AllReduceTable& table) {
  const std::span<const AllReduceTable::Size> sizes(table.sizes.data(), static_cast<size_t>(table.count));
  AllReduceCrossover crossover;
  for (const AllReduceTable::Size& size : sizes) {
    if (size.lines_us <= 0.0f || size.lines_us > size.large_us) break;
    crossover.lines_up_to = size.bytes;
  }
  for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
    const float peer_us = size->lines_us > 0.0f ? std::min(size->lines_us, size->large_us) : size->large_us;
    if (size->nccl_us >= peer_us) break;
    crossover.nccl_from = size->bytes;
  }
  return crossover;
}

}  // namespace minfer::cuda
