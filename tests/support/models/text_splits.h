#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minfer::test {

/// The number of ways to cut a text of `size` bytes into pieces: one for each set of places between two bytes.
inline uint32_t num_splits(size_t size) {
  return size < 2 ? 1u : 1u << (size - 1);
}

/// Way number `split` < num_splits(text.size()): if bit i is set, there is a cut behind byte i.
inline std::vector<std::string> split_text(std::string_view text, uint32_t split) {
  std::vector<std::string> pieces(1);
  for (size_t i = 0; i < text.size(); ++i) {
    pieces.back() += text[i];
    if (i + 1 < text.size() && (split >> i & 1u) != 0) pieces.emplace_back();
  }
  return pieces;
}

/// The rest of a whole text if a generation ends at the first stop string in it.
struct StoppedText {
  std::string text;  ///< before the stop string
  std::string stop;  ///< empty: none occurs
};

/// The reference: the first place, behind the first `min_size` bytes, at which a stop string ends; if
/// several end there, the longest of them.
inline StoppedText stop_whole_text(std::string_view text, const std::vector<std::string>& stops,
                                   size_t min_size = 0) {
  for (size_t end = min_size + 1; end <= text.size(); ++end) {
    std::string longest;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && stop.size() > longest.size()) longest = stop;
    }
    if (!longest.empty()) return {std::string(text.substr(0, end - longest.size())), longest};
  }
  return {std::string(text), {}};
}

}  // namespace minfer::test
