#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minfer {

/// Matches a step's kernel records with its launches.
struct LaunchMatch {
  std::vector<int32_t> launch_of;  ///< by record: index of its launch; -1: it fits none
  int32_t unmatched = 0;           ///< records that fit no launch
  int32_t missing = 0;             ///< launches without a record
};

/// The name of an unknown launch; any record fits it.
inline constexpr int32_t kAnyName = -1;

/// Aligns records, in the order of their begins, with launches, in the order of their calls, so that as few as possible
/// of both are left over (Myers, "An O(ND) difference algorithm", 1986). Both are numbers of kernel names. If over 512 are left
/// over, the match ends with the pairs found up to there.
LaunchMatch match_launches(std::span<const int32_t> records, std::span<const int32_t> launches);

}  // namespace minfer
