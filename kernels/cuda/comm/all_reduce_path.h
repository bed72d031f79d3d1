#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "kernels/backend.h"

namespace minfer::cuda {

/// How an all-reduce is computed. The first three over memory that the GPUs see of each other.
enum class AllReducePath : uint8_t {
  lines,   ///< one shot: every rank sends its part to all others, each 4 bytes of it with a flag: no barrier
  chunks,  ///< one shot with a flag a chunk of rows: half the bytes of `lines`, and a fence more
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

/// Of a part for which there is room in the lines of a receiver.
inline constexpr int64_t kMostLineBytes = int64_t{512} << 10;

/// Before anything is measured. Sending 4 bytes with each 4 costs as much as a fence (some 1.5 us) at about half a
/// megabyte that a rank sends.
constexpr AllReduceCrossover default_crossover(int32_t ranks) {
  return {.lines_up_to = (int64_t{256} << 10) / (ranks - 1)};
}

/// The path of `rows` x `hidden` elements of `element_bytes` bytes: the same on all ranks, as all arguments are. Of two ranks one
/// shot is the least that goes over the link; of more, two shots are.
constexpr AllReducePath all_reduce_path(int64_t rows, int64_t hidden, int64_t element_bytes, int32_t ranks,
                                        AllReduceChoice choice, const AllReduceCrossover& crossover) {
  constexpr int64_t kVector = 8;  // elements; rows are padded to whole ones
  const int64_t bytes = rows * hidden * element_bytes;
  const int64_t padded_bytes = rows * ((hidden + kVector - 1) / kVector * kVector) * element_bytes;
  if (choice == AllReduceChoice::nccl) return AllReducePath::nccl;
  if (choice == AllReduceChoice::automatic && bytes >= crossover.nccl_from) return AllReducePath::nccl;
  if (bytes <= crossover.lines_up_to && padded_bytes <= kMostLineBytes) return AllReducePath::lines;
  return ranks > 2 ? AllReducePath::two_shot : AllReducePath::chunks;
}

/// Microseconds of an all-reduce with its norm, by the ways there are, of bf16 parts.
struct AllReduceTable {
  static constexpr int32_t kMostSizes = 7;
  struct Size {
    int64_t bytes = 0;
    float lines_us = 0.0f;  ///< 0: too large for it
    float large_us = 0.0f;  ///< chunks or two_shot
    float nccl_us = 0.0f;
  };
  std::array<Size, kMostSizes> sizes{};
  int32_t count = 0;
};

/// Lines for all sizes up to the first at which they are slower; NCCL from the first size on from which it is faster to the end.
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
