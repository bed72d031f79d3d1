#pragma once

#include <cstddef>
#include <cstdint>

namespace minfer::cuda {

inline constexpr int kMostRanks = 8;
/// Elements of a row that a thread takes at a time.
inline constexpr int kVectorElements = 8;

constexpr int64_t vectors_of(int64_t cols) {
  return (cols + kVectorElements - 1) / kVectorElements;
}

/// A rank's record of its own calls of one kind of exchange. In its device memory, zeroed at the start.
struct ChannelState {
  uint32_t epoch;            ///< number of the last finished call
  uint32_t finished_blocks;  ///< of the current call
  uint32_t aborted;          ///< 1: a block has seen the abort word, and no block waits any more
};

/// The arguments of kernels that take part in one kind of exchange. All ranks make its calls in the same order.
struct Channel {
  ChannelState* state;
  const uint32_t* abort;  ///< in page-locked host memory: not 0 once a rank has failed
  std::byte* block
      [kMostRanks];  ///< memory of every rank, by rank, that the others write into; the same layout in all
  int32_t rank;
  int32_t ranks;
};

/// Eight bytes of data in 16 bytes: each half holds 4 of them and, above, the number of their call. Halves are
/// written and read whole, so data with the right number needs neither a fence nor a barrier.
struct alignas(16) FlaggedLine {
  unsigned long long half[2];
};

/// Where the parts of a rank's block begin, in bytes. `lines`, `data`, `flags` and `tokens` exist twice, for even and odd calls.
struct BlockLayout {
  int64_t lines_per_rank = 0;       ///< FlaggedLine: lines of one sender
  int64_t data_bytes_per_rank = 0;  ///< rows of chunks of one sender
  int64_t tokens_per_call = 0;

  int64_t lines = 0;  ///< [2, ranks, lines_per_rank] FlaggedLine
  int64_t data = 0;   ///< [2, ranks, data_bytes_per_rank]
  int64_t flags = 0;  ///< [2, ranks, kMostChunks] u32
  int64_t gather_order =
      0;  ///< [2] FlaggedLine: where the first rank wants its columns, counted from its block, and their row stride
  int64_t gather_flags = 0;  ///< [ranks, kGatherBlocks] u32
  int64_t tokens = 0;        ///< [2, tokens_per_call] u64: token, above it the number of the call
  int64_t bytes = 0;         ///< of all of these

  int64_t columns = 0;  ///< behind them, f32, in the first rank alone: columns that other processes send it
  int64_t column_bytes = 0;  ///< 0: the others write them to their final place
};

/// The most chunks of rows in a call of `chunks` or `two_shot`.
inline constexpr int32_t kMostChunks = 4096;
/// Thread blocks that send a rank's columns.
inline constexpr int32_t kGatherBlocks = 64;

}  // namespace minfer::cuda
