#pragma once

#include <cstdint>

namespace minfer {

/// The keys, up to its own position, that a query sees.
struct AttentionWindow {
  int32_t keys = 0;  ///< at most, its own included; 0: all
  /// False: the last `keys` ones. True: those of its chunk; chunks of `keys` positions follow one another from position 0 on (Llama 4).
  bool chunked = false;

  constexpr AttentionWindow() = default;
  constexpr AttentionWindow(int32_t num_keys, bool is_chunked = false)
      : keys(num_keys), chunked(is_chunked) {}

  constexpr explicit operator bool() const { return keys != 0; }
  constexpr bool operator==(const AttentionWindow&) const = default;

  /// The first position that a query at `position` sees; never decreases with `position`.
  constexpr int32_t first_seen(int32_t position) const {
    if (keys == 0) return 0;
    const int32_t first = chunked ? position - position % keys : position - keys + 1;
    return first > 0 ? first : 0;
  }
};

}  // namespace minfer
