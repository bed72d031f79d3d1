#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace minfer {

/// Which launch each of a step's kernel records is.
struct LaunchMatch {
  std::vector<int32_t> launch_of;  ///< by record, its place among the launches; -1: it fits none
  int32_t unmatched = 0;           ///< records that fit no launch
  int32_t missing = 0;             ///< launches without a record
};

/// The name of a launch that is not known: any record fits it.
inline constexpr int32_t kAnyName = -1;

/// Aligns records, in the order in which they began, with launches, in the order in which they were made, so that as few as can be
/// of both are left over (Myers, "An O(ND) difference algorithm", 1986). Both are numbers of kernel names. Where over 512 are left
/// over, the match ends with what fits up to there.
LaunchMatch match_launches(std::span<const int32_t> records, std::span<const int32_t> launches);

}  // namespace minfer
