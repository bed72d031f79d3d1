#pragma once

#include <cstdint>

/// Divides the strips of experts (expert_strip.cuh) among thread blocks.
///
/// Batches come in turns (RouteGroups::turn_routes): a large one, a small one, ..., then the rest of either
/// kind. The strips of a large batch take longer, so each block gets strips that take the same time together.
namespace minfer::cuda {

/// The time of a strip of a batch with up to 16 routes, and with up to 8, as measured: 2.66 and 2.19 us.
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
