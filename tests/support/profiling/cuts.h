#pragma once

#include <string_view>
#include <vector>

/// The places at which a file may be cut off.
namespace minfer::test {

/// Sizes to which a text is cut, ascending, from `first` on: every size near the end of a line, where readers differ, and one of
/// seven within a line.
inline std::vector<size_t> cuts_of(std::string_view text, size_t first = 0) {
  constexpr size_t kNear = 24;
  std::vector<size_t> cuts;
  for (size_t bytes = first; bytes <= text.size(); ++bytes) {
    const size_t begin = bytes > kNear ? bytes - kNear : 0;
    if (bytes % 7 == 0 || text.substr(begin, 2 * kNear).find('\n') != std::string_view::npos)
      cuts.push_back(bytes);
  }
  return cuts;
}

}  // namespace minfer::test
