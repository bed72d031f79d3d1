#pragma once

#include <cstdint>
#include <vector>

#include "kernels/base/random.h"

namespace minfer::test {

/// The kinds of masks that grammars make: nearly all tokens, few, whole words of either.
enum class MaskKind : uint8_t { most, half, few, words, one, all, none };
inline constexpr MaskKind kMaskKinds[] = {MaskKind::most, MaskKind::half, MaskKind::few, MaskKind::words,
                                          MaskKind::one,  MaskKind::all,  MaskKind::none};

inline bool mask_allows(const std::vector<uint32_t>& mask, int64_t token) {
  return (mask[static_cast<size_t>(token / 32)] >> (token % 32) & 1) != 0;
}

/// A mask of `vocabulary` tokens, [ceil(vocabulary / 32)]; bits beyond the vocabulary are 0.
inline std::vector<uint32_t> random_mask(MaskKind kind, int64_t vocabulary, uint64_t seed) {
  std::vector<uint32_t> mask(static_cast<size_t>((vocabulary + 31) / 32));
  const auto drawn = [&](int64_t position) { return uniform(seed, position); };
  const auto chosen = static_cast<int64_t>(drawn(-1) * static_cast<double>(vocabulary));
  const auto allows = [&](int64_t token) {
    switch (kind) {
      case MaskKind::most:
        return drawn(token) < 0.98;
      case MaskKind::half:
        return drawn(token) < 0.5;
      case MaskKind::few:
        return drawn(token) < 0.01 || token == chosen;
      case MaskKind::words:
        return drawn(token / 32) < 0.5 || token == chosen;
      case MaskKind::one:
        return token == chosen;
      case MaskKind::all:
        return true;
      case MaskKind::none:
        return false;
    }
    return false;
  };
  for (int64_t token = 0; token < vocabulary; ++token) {
    if (allows(token)) mask[static_cast<size_t>(token / 32)] |= uint32_t{1} << (token % 32);
  }
  return mask;
}

}  // namespace minfer::test
