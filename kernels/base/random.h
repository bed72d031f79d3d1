#pragma once

#include <array>
#include <cstdint>

namespace minfer {

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"): four
/// random words for a counter and a key, with no state. Known answers are in the test.
constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t second = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

/// A number in [0, 1) with 53 random bits, from the seed (as key), the position and the number of the attempt (as counter) alone.
constexpr double uniform(uint64_t seed, int64_t position, uint32_t attempt = 0) {
  const auto at = static_cast<uint64_t>(position);
  const std::array<uint32_t, 4> words =
      philox4x32({static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), attempt, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t bits = uint64_t{words[1]} << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace minfer
