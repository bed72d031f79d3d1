#pragma once

#include <cstdint>

/// How the panels of experts (expert_panel.cuh) are divided among thread blocks.
///
/// Batches come in turns (RouteGroups::turn_routes): a large one, a small one, ..., then those that are left of either kind. The panels of a
/// large one take longer, and each block gets panels that take equally long together.
namespace minfer::cuda {

/// What panels of a batch with up to 16 routes and of one with up to 8 take, as measured: 2.66 and 2.19 us.
inline constexpr int64_t kLargePanelCost = 6, kSmallPanelCost = 5;

struct ExpertPanelShare {
  int32_t large;   ///< batches
  int32_t small;   ///< the others
  int32_t panels;  ///< of each

  /// The first panel of block `block` of `blocks`; of block `blocks`: behind the last.
  constexpr int32_t first_of(int32_t block, int32_t blocks) const {
    return panel_at(panels * (kLargePanelCost * large + kSmallPanelCost * small) * block / blocks);
  }

 private:
  /// The panel that is being multiplied when panels of so much cost are done.
  constexpr int32_t panel_at(int64_t cost) const {
    constexpr int64_t kPairCost = kLargePanelCost + kSmallPanelCost;
    const int32_t pairs = large < small ? large : small;
    const int64_t of_pairs = kPairCost * pairs * panels;
    if (cost >= of_pairs) {
      const int64_t of_panel = large > small ? kLargePanelCost : kSmallPanelCost;
      return 2 * pairs * panels + static_cast<int32_t>((cost - of_pairs) / of_panel);
    }
    const int64_t pair = cost / (kPairCost * panels);
    const int64_t rest = cost - pair * kPairCost * panels, of_large = kLargePanelCost * panels;
    const int64_t of_pair =
        rest < of_large ? rest / kLargePanelCost : panels + (rest - of_large) / kSmallPanelCost;
    return static_cast<int32_t>(2 * pair * panels + of_pair);
  }
};

}  // namespace minfer::cuda
