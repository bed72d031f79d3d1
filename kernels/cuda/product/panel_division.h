#pragma once

#include <algorithm>
#include <cstdint>

namespace minfer::cuda {

/// Panels of a matrix, and what one is worth: its bytes.
struct PanelLoad {
  int64_t panels;
  int64_t panel_bytes;

  /// Of the block that has most of them.
  constexpr int64_t most_bytes(int64_t blocks) const { return (panels + blocks - 1) / blocks * panel_bytes; }
};

/// How many of `blocks` (2 or more) take panels of `first`, so that the block that has most bytes has as few as can be, and as many of
/// those for which that is so; the others take those of `second`.
constexpr int32_t blocks_of_first(const PanelLoad& first, const PanelLoad& second, int32_t blocks) {
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

}  // namespace minfer::cuda
