#pragma once

#include "kernels/cpu/product/grid_tables.h"
#include "kernels/cpu/product/superblock_decoders.h"

// Decoders of the formats with one to three bits an element (see block_decoders.h): the ternary ones and those with a grid. unpack()
// turns all of them into signed bytes, so that one decode() serves. Their scales are a half times an odd integer and a power of two,
// and no product with an element has more than 24 bits.
namespace minfer::cpu {
inline namespace MINFER_ISA {

/// numbers[i] = d * (2 s + 1), where s is nibble i of `scales`, for sixteen sub-blocks.
MINFER_ALWAYS_INLINE inline void unpack_odd_nibbles(const uint8_t* scales, float d, float* numbers) {
  for (int i = 0; i < kLanes; ++i)
    numbers[i] = d * static_cast<float>(2 * (scales[i / 2] >> (i % 2 * 4) & 15) + 1);
}

MINFER_ALWAYS_INLINE inline uint32_t load_word(const uint8_t* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

/// Eight elements of iq3 from two grid indices.
MINFER_ALWAYS_INLINE inline uint64_t pair_of(const uint32_t* grid, uint32_t first, uint32_t second) {
  return grid[first] | static_cast<uint64_t>(grid[second]) << 32;
}

template <>
struct Decoder<DType::tq1_0> : SignedDecoder<BlockTq1_0> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    digits<32, 5>(block.qs, state.q);
    digits<16, 5>(block.qs + 32, state.q + 160);
    digits<4, 4>(block.qh, state.q + 240);
    Lanes::set(widen_f16(block.d)).store(state.numbers);
    keep_in_memory(state);
  }

 private:
  /// out[count n + i] = digit n of bytes[i], minus 1.
  template <int count, int kDigits>
  MINFER_ALWAYS_INLINE static void digits(const uint8_t* bytes, uint8_t* out) {
    constexpr uint8_t kPowers[5] = {1, 3, 9, 27, 81};
    for (int n = 0; n < kDigits; ++n) {
      for (int i = 0; i < count; ++i) {
        const auto fraction = static_cast<uint8_t>(bytes[i] * kPowers[n]);
        out[count * n + i] = static_cast<uint8_t>((fraction * 3 >> 8) - 1);
      }
    }
  }
};

template <>
struct Decoder<DType::tq2_0> : SignedDecoder<BlockTq2_0> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const Bytes32 packed = Bytes32::load(block.qs + 32 * (j / 4));
      (((packed >> (2 * (j % 4))) & 3) - 1).store(state.q + 32 * j);
    });
    Lanes::set(widen_f16(block.d)).store(state.numbers);
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::iq2_xxs> : SignedDecoder<BlockIq2Xxs> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const uint64_t* grid = kGridTables.iq2_xxs;
    const float d = widen_f16(block.d) * 0.125f;
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const uint8_t* q = block.qs + 8 * j;
      const uint32_t word = load_word(q + 4);
      const Bytes32 bytes = Bytes32::of(grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]]);
      negate_where(all_signs(word), bytes).store(state.q + 32 * j);
      state.numbers[2 * j] = state.numbers[2 * j + 1] = d * static_cast<float>(2 * (word >> 28) + 1);
    });
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::iq2_xs> : SignedDecoder<BlockIq2Xs> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const uint64_t* grid = kGridTables.iq2_xs;
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const uint16_t* q = block.qs + 4 * j;
      const Bytes32 bytes =
          Bytes32::of(grid[q[0] & 511], grid[q[1] & 511], grid[q[2] & 511], grid[q[3] & 511]);
      const uint32_t sevens = q[0] >> 9 | q[1] >> 9 << 7 | q[2] >> 9 << 14 | q[3] >> 9 << 21;
      negate_where(all_signs(sevens), bytes).store(state.q + 32 * j);
    });
    unpack_odd_nibbles(block.scales, widen_f16(block.d) * 0.125f, state.numbers);
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::iq2_s> : SignedDecoder<BlockIq2S> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const uint64_t* grid = kGridTables.iq2_s;
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const uint8_t* q = block.qs + 4 * j;
      const int high = block.qh[j];
      const Bytes32 bytes = Bytes32::of(grid[q[0] | (high << 8 & 0x300)], grid[q[1] | (high << 6 & 0x300)],
                                        grid[q[2] | (high << 4 & 0x300)], grid[q[3] | (high << 2 & 0x300)]);
      negate_where(load_word(block.signs + 4 * j), bytes).store(state.q + 32 * j);
    });
    unpack_odd_nibbles(block.scales, widen_f16(block.d) * 0.125f, state.numbers);
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::iq3_xxs> : SignedDecoder<BlockIq3Xxs> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const uint32_t* grid = kGridTables.iq3_xxs;
    const float d = widen_f16(block.d) * 0.25f;
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const uint8_t* q = block.qs + 8 * j;
      const uint32_t word = load_word(block.scales_and_signs + 4 * j);
      const Bytes32 bytes = Bytes32::of(pair_of(grid, q[0], q[1]), pair_of(grid, q[2], q[3]),
                                        pair_of(grid, q[4], q[5]), pair_of(grid, q[6], q[7]));
      negate_where(all_signs(word), bytes).store(state.q + 32 * j);
      state.numbers[2 * j] = state.numbers[2 * j + 1] = d * static_cast<float>(2 * (word >> 28) + 1);
    });
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::iq3_s> : SignedDecoder<BlockIq3S> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const uint32_t* grid = kGridTables.iq3_s;
    const float d = widen_f16(block.d);
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const uint8_t* q = block.qs + 8 * j;
      const uint32_t high = block.qh[j];
      const auto index = [&](int i)
                             MINFER_ALWAYS_INLINE -> uint32_t { return q[i] | (high << (8 - i) & 256); };
      const Bytes32 bytes = Bytes32::of(pair_of(grid, index(0), index(1)), pair_of(grid, index(2), index(3)),
                                        pair_of(grid, index(4), index(5)), pair_of(grid, index(6), index(7)));
      negate_where(load_word(block.signs + 4 * j), bytes).store(state.q + 32 * j);
      const int s = block.scales[j / 2] >> (j % 2 * 4) & 15;
      state.numbers[2 * j] = state.numbers[2 * j + 1] = d * static_cast<float>(2 * s + 1);
    });
    keep_in_memory(state);
  }
};

/// Eight elements of iq1, times eight: one eighth is added to each, or subtracted.
MINFER_ALWAYS_INLINE inline uint64_t iq1_bytes(int index, bool takes_off) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  return (kGridTables.iq1[index] - (takes_off ? 2 * kOnes : 0)) ^ 128 * kOnes;
}

template <>
struct Decoder<DType::iq1_s> : SignedDecoder<BlockIq1S> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const float d = widen_f16(block.d) * 0.125f;
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const int high = block.qh[j];
      const auto eight = [&](int i) MINFER_ALWAYS_INLINE {
        return iq1_bytes(block.qs[4 * j + i] | (high >> (3 * i) & 7) << 8, high >> 15 != 0);
      };
      Bytes32::of(eight(0), eight(1), eight(2), eight(3)).store(state.q + 32 * j);
      state.numbers[2 * j] = state.numbers[2 * j + 1] = d * static_cast<float>(2 * (high >> 12 & 7) + 1);
    });
    keep_in_memory(state);
  }
};

template <>
struct Decoder<DType::iq1_m> : SignedDecoder<BlockIq1M> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    const float d = widen_f16(half_of(block)) * 0.125f;
    unroll<8>([&](auto j) MINFER_ALWAYS_INLINE {
      const auto eight = [&](int i) MINFER_ALWAYS_INLINE {
        const int high = block.qh[2 * j + i / 2] >> (i % 2 * 4);
        return iq1_bytes(block.qs[4 * j + i] | (high & 7) << 8, (high & 8) != 0);
      };
      Bytes32::of(eight(0), eight(1), eight(2), eight(3)).store(state.q + 32 * j);
    });
    for (int i = 0; i < kLanes; ++i)
      state.numbers[i] = d * static_cast<float>(2 * (block.scales[i / 4] >> (i % 4 * 3) & 7) + 1);
    keep_in_memory(state);
  }
};

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
