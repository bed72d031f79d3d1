#pragma once

#include <cstdint>

namespace minfer {

/// The keys, up to its own position, that a query sees.
struct AttentionWindow {
  int32_t keys = 0;  ///< at most, its own included; 0: all
  /// False: the last `keys` ones. True: those of its chunk; chunks of `keys` positions follow one another from position 0 on (Llama 4).
  bool chunked = false;
  int16_t hidden = 0;  ///< the first positions, each of which its own query alone sees

  constexpr AttentionWindow() = default;
  constexpr AttentionWindow(int32_t num_keys, bool is_chunked = false, int16_t num_hidden = 0)
      : keys(num_keys), chunked(is_chunked), hidden(num_hidden) {}

  constexpr explicit operator bool() const { return keys != 0 || hidden != 0; }
  constexpr bool operator==(const AttentionWindow&) const = default;

  /// The first position that a query at `position` sees; never decreases with `position`.
  constexpr int32_t first_seen(int32_t position) const {
    const int32_t least = hidden < position ? hidden : position > 0 ? position : 0;
    if (keys == 0) return least;
    const int32_t first = chunked ? position - position % keys : position - keys + 1;
    return first > least ? first : least;
  }
};

}  // namespace minfer
