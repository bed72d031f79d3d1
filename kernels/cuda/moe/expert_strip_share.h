#pragma once

#include <cstdint>

/// Divides the strips of experts (expert_strip.cuh) among thread blocks.
///
/// Large and small batches alternate (RouteGroups::turn_routes), a large one first; then comes the rest of
/// either kind. Strips of a large batch take longer, so the division gives all blocks the same total time.
namespace minfer::cuda {

/// The relative times of a strip of a batch with up to 16 routes, and with up to 8: 2.66 and 2.19 us were measured.
inline constexpr int64_t kLargeStripCost = 6, kSmallStripCost = 5;

struct ExpertStripShare {
  int32_t large;   ///< batches
  int32_t small;   ///< the others
  int32_t strips;  ///< of each

  /// The first strip of block `block` of `blocks`; for `block` = `blocks`, the end of all strips.
  constexpr int32_t first_of(int32_t block, int32_t blocks) const {
    return strip_at(strips * (kLargeStripCost * large + kSmallStripCost * small) * block / blocks);
  }

 private:
  /// The strip that is being multiplied when strips with a total of `cost` are done.
  constexpr int32_t strip_at(int64_t cost) const {
    constexpr int64_t kPairCost = kLargeStripCost + kSmallStripCost;
    const int32_t pairs = large < small ? large : small;
    const int64_t of_pairs = kPairCost * pairs * strips;
    if (cost >= of_pairs) {
      const int64_t of_strip = large > small ? kLargeStripCost : kSmallStripCost;
      return 2 * pairs * strips + static_cast<int32_t>((cost - of_pairs) / of_strip);
    }
    const int64_t pair = cost / (kPairCost * strips);
    const int64_t rest = cost - pair * kPairCost * strips, of_large = kLargeStripCost * strips;
    const int64_t of_pair =
        rest < of_large ? rest / kLargeStripCost : strips + (rest - of_large) / kSmallStripCost;
    return static_cast<int32_t>(2 * pair * strips + of_pair);
  }
};

}  // namespace minfer::cuda
