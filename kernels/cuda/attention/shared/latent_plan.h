#pragma once

#include <algorithm>
#include <cstdint>

/// Sizes of the kernel of latent attention and the division of its work: pure functions of numbers that the host knows.
namespace minfer::cuda {

/// The only sizes that the kernel is compiled for: DeepSeek's and Kimi's.
inline constexpr int32_t kLatentValues = 512;
inline constexpr int32_t kLatentRow = 576;
/// Keys that are multiplied at a time.
inline constexpr int32_t kLatentKeys = 64;

/// Divides latent attention over thread blocks: tiles of `rows` rows (query token times query head) of a
/// sequence, and parts of the keys of each tile.
struct LatentPlan {
  int32_t rows = 64;                ///< 16 or 64
  int32_t tiles = 1;                ///< at least those of all sequences; the blocks beyond end
  int32_t tiles_of_a_sequence = 0;  ///< 0: they differ
  int32_t splits = 1;               ///< parts of the keys

  static constexpr int32_t kMostSplits = 64;

  /// For `sequences` sequences with `tokens` query tokens together and up to `max_context` keys each.
  static LatentPlan of(int32_t tokens, int32_t sequences, int32_t heads, int64_t max_context,
                       int32_t num_sms) {
    LatentPlan plan;
    const int64_t rows = int64_t{tokens} * heads;
    plan.rows = rows / std::max(1, sequences) <= 32 ? 16 : 64;
    auto filled = static_cast<int32_t>(rows / plan.rows + 1);
    if (tokens == sequences) {
      plan.tiles_of_a_sequence = (heads + plan.rows - 1) / plan.rows;
      plan.tiles = filled = sequences * plan.tiles_of_a_sequence;
    } else {
      plan.tiles = static_cast<int32_t>(rows / plan.rows) + sequences;  // each fills its tiles but the last
    }
    const auto chunks = static_cast<int32_t>(std::min<int64_t>(max_context / kLatentKeys + 1, kMostSplits));
    plan.splits = std::clamp(num_sms / std::max({1, filled, sequences}), 1, chunks);
    return plan;
  }

  /// The most rows of partial results that a plan with more than one split needs.
  static int64_t most_partial_rows(int32_t num_sms) { return int64_t{64} * 2 * num_sms; }
  int64_t partial_rows() const { return splits > 1 ? int64_t{rows} * tiles * splits : 0; }
};

/// Shared memory of a block, in either form.
inline constexpr int32_t kLatentSharedBytes =
    (64 + 2 * kLatentKeys) * kLatentRow * 2 + 64 * kLatentKeys * 2 + 8 * 16 * 4;

}  // namespace minfer::cuda
