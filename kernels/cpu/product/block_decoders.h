#pragma once

#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/product/int_lanes.h"
#include "kernels/dtype.h"
#include "kernels/quant_types.h"

// The f32 values of weight blocks. No other code says what a quantised element is worth, so all
// kernels agree on its bits. A decoder works in two steps, so that several rows can take turns in a
// dot product:
//   Block, kElements                  what is decoded, and its number of elements
//   kChunks                           pieces of a block that one decode() yields
//   State, unpack(block, state)       what a whole block needs once: its scales, its elements as bytes
//   decode(block, state, chunk, sink) hands the values of a chunk to sink(i, Lanes), sixteen at a time, where
//                                     i = 0, 1, ... counts from the start of the block
//
// Scales are products of a half and a small integer, hence exact in f32, and so is scale * element.
// The only rounding is in the addition of the formats with a minimum (q4_1, q5_1, q2_k, q4_k, q5_k),
// fused or not.
namespace minfer::cpu {
inline namespace MINFER_ISA {

template <DType type>
struct Decoder;

/// The values of a whole block in order.
template <DType type, class Sink>
MINFER_ALWAYS_INLINE inline void decode_block(const typename Decoder<type>::Block& block, Sink&& sink) {
  typename Decoder<type>::State state;
  Decoder<type>::unpack(block, state);
  unroll<Decoder<type>::kChunks>(
      [&](auto chunk) MINFER_ALWAYS_INLINE { Decoder<type>::decode(block, state, chunk, sink); });
}

/// The types and sizes of a decoder's block.
template <class BlockType, class StateType, int elements, int chunks>
struct DecoderTraits {
  using Block = BlockType;
  using State = StateType;
  static constexpr int kElements = elements;
  static constexpr int kChunks = chunks;
};

template <class Element>
struct PlainBlock {
  Element values[kLanes];
};
struct NoState {};

/// Plain types: sixteen elements count as a block; a caller may cut off the last block of a row.
template <class Element, Lanes (*load)(const Element*)>
struct PlainDecoder : DecoderTraits<PlainBlock<Element>, NoState, kLanes, 1> {
  MINFER_ALWAYS_INLINE static void unpack(const PlainBlock<Element>&, NoState&) {}
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const PlainBlock<Element>& block, NoState, int, Sink&& sink) {
    sink(0, load(block.values));
  }
};
template <>
struct Decoder<DType::f32> : PlainDecoder<float, Lanes::load> {};
template <>
struct Decoder<DType::f16> : PlainDecoder<uint16_t, Lanes::load_f16> {};
template <>
struct Decoder<DType::bf16> : PlainDecoder<uint16_t, Lanes::load_bf16> {};

/// 0, 1, ... 15.
inline Lanes nibble_values() {
  alignas(64) static constexpr float kValues[kLanes] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return Lanes::load(kValues);
}

inline Lanes iq4_values() {
  alignas(64) static constexpr float kValues[kLanes] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                        1,    13,   25,  38,  53,  69,  89,  113};
  return Lanes::load(kValues);
}

inline Lanes e2m1_values() {
  alignas(64) static constexpr float kValues[kLanes] = {
      0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return Lanes::load(kValues);
}

/// 32 nibbles through a table: bytes 0..15 hold elements 0..15 in their low and 16..31 in their high halves.
template <class Sink>
MINFER_ALWAYS_INLINE inline void decode_nibbles(const uint8_t* qs, Lanes table, int first, Sink&& sink) {
  const IntLanes bytes = IntLanes::load_u8(qs);
  sink(first, lookup(table, bytes));
  sink(first + 1, lookup(table, bytes >> 4));
}

/// Types of 32 four-bit elements. State holds the value of each of the sixteen codes.
template <class Block>
struct NibbleDecoder : DecoderTraits<Block, Lanes, kSmallBlock, 1> {
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const Lanes& table, int, Sink&& sink) {
    decode_nibbles(block.qs, table, 0, sink);
  }
};

template <>
struct Decoder<DType::q4_0> : NibbleDecoder<BlockQ4_0> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& table) {
    table = (nibble_values() - Lanes::set(8.0f)) * broadcast_f16(&block.d);
  }
};

template <>
struct Decoder<DType::q4_1> : NibbleDecoder<BlockQ4_1> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& table) {
    table = fma(broadcast_f16(&block.d), nibble_values(), broadcast_f16(&block.m));
  }
};

template <>
struct Decoder<DType::iq4_nl> : NibbleDecoder<BlockIq4Nl> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& table) {
    table = iq4_values() * broadcast_f16(&block.d);
  }
};

template <>
struct Decoder<DType::mxfp4> : NibbleDecoder<BlockMxfp4> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& table) {
    table = e2m1_values() * broadcast_bits(e8m0_bits(block.e));
  }
};

template <>
struct Decoder<DType::fp8> : DecoderTraits<BlockFp8, Lanes, kFp8Block, 4> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& d) {
    d = broadcast_bits(static_cast<uint32_t>(block.d) << 16);
  }
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const State& d, int chunk, Sink&& sink) {
    unroll<2>([&](auto j) MINFER_ALWAYS_INLINE {
      const int i = 2 * chunk + j;
      // As in e4m3_to_f32(); the sign is in all bits above a signed byte.
      const IntLanes q = IntLanes::load_i8(reinterpret_cast<const int8_t*>(block.qs) + kLanes * i);
      const IntLanes bits = (q << 20) & IntLanes::set(static_cast<int32_t>(0x87f00000u));
      sink(i, as_float(bits) * Lanes::set(0x1p120f) * d);
    });
  }
};

/// Elements 16 i ... of a block with five-bit elements; qh holds the fifth bits of its 32 elements.
inline IntLanes five_bits(const uint8_t* qs, const uint8_t* qh, int i) {
  const uint16_t fifth = static_cast<uint16_t>(qh[2 * i] | qh[2 * i + 1] << 8);
  const IntLanes low = (IntLanes::load_u8(qs) >> 4 * i) & IntLanes::set(15);
  return low | IntLanes::where(fifth, 16);
}

template <>
struct Decoder<DType::q5_0> : DecoderTraits<BlockQ5_0, Lanes, kSmallBlock, 1> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& d) { d = broadcast_f16(&block.d); }
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const State& d, int, Sink&& sink) {
    unroll<2>([&](auto i) MINFER_ALWAYS_INLINE {
      sink(i, to_float(five_bits(block.qs, block.qh, i) - IntLanes::set(16)) * d);
    });
  }
};

struct ScaleAndMinimum {
  Lanes d, m;
};

template <>
struct Decoder<DType::q5_1> : DecoderTraits<BlockQ5_1, ScaleAndMinimum, kSmallBlock, 1> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& state) {
    state = {broadcast_f16(&block.d), broadcast_f16(&block.m)};
  }
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const State& state, int, Sink&& sink) {
    unroll<2>([&](auto i) MINFER_ALWAYS_INLINE {
      sink(i, fma(to_float(five_bits(block.qs, block.qh, i)), state.d, state.m));
    });
  }
};

template <>
struct Decoder<DType::q8_0> : DecoderTraits<BlockQ8_0, Lanes, kSmallBlock, 1> {
  MINFER_ALWAYS_INLINE static void unpack(const Block& block, State& d) { d = broadcast_f16(&block.d); }
  template <class Sink>
  MINFER_ALWAYS_INLINE static void decode(const Block& block, const State& d, int, Sink&& sink) {
    unroll<2>([&](auto i)
                  MINFER_ALWAYS_INLINE { sink(i, to_float(IntLanes::load_i8(block.qs + 16 * i)) * d); });
  }
};

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
