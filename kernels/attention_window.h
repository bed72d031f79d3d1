#pragma once

#include <cstdint>

namespace minfer {

/// Which keys up to its own position a query sees.
struct AttentionWindow {
  int32_t keys = 0;  ///< at the most, its own included; 0: all
  /// The last ones; or those of its chunk, chunks of so many positions following one another from 0 on (Llama 4).
  bool chunked = false;

  constexpr AttentionWindow() = default;
  constexpr AttentionWindow(int32_t num_keys, bool is_chunked = false)
      : keys(num_keys), chunked(is_chunked) {}

  constexpr explicit operator bool() const { return keys != 0; }
  constexpr bool operator==(const AttentionWindow&) const = default;

  /// The first position that a query at `position` sees; never smaller for a later one.
  constexpr int32_t first_seen(int32_t position) const {
    if (keys == 0) return 0;
    const int32_t first = chunked ? position - position % keys : position - keys + 1;
    return first > 0 ? first : 0;
  }
};

}  // namespace minfer
