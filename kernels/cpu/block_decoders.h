#pragma once

#include <cstddef>

#include "kernels/cpu/int_lanes.h"
#include "kernels/dtype.h"
#include "kernels/quant_types.h"

// The f32 values of weight blocks. Decoder<type>::decode hands a block's values to `sink(i, Lanes)`, sixteen
// at a time, i = 0, 1, ... ascending; the sink stores them (panel) or multiplies them at once (dot product).
// This is the only place that says what a quantised element is worth, so all kernels agree on its bits.
//
// Scales are products of a half and a small integer, hence exact in f32, and so is scale * element: the one
// rounding is that of the addition in the formats with a minimum (q4_1, q5_1, q2_k, q4_k, q5_k), fused or
// not.
namespace minfer::cpu {
inline namespace MINFER_ISA {

template <DType type>
struct Decoder;

/// Plain types: sixteen elements count as a block; the last of a row may be cut off by its caller.
template <class Element>
struct PlainBlock {
  Element values[kLanes];
};

template <>
struct Decoder<DType::f32> {
  using Block = PlainBlock<float>;
  static constexpr int kElements = kLanes;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    sink(0, Lanes::load(block.values));
  }
};

template <>
struct Decoder<DType::f16> {
  using Block = PlainBlock<uint16_t>;
  static constexpr int kElements = kLanes;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    sink(0, Lanes::load_f16(block.values));
  }
};

template <>
struct Decoder<DType::bf16> {
  using Block = PlainBlock<uint16_t>;
  static constexpr int kElements = kLanes;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    sink(0, Lanes::load_bf16(block.values));
  }
};

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

/// 32 nibbles through a table: bytes 0..15 hold elements 0..15 in their low and 16..31 in their high halves.
template <class Sink>
void decode_nibbles(const uint8_t* qs, Lanes table, int first, Sink&& sink) {
  const IntLanes bytes = IntLanes::load_u8(qs);
  sink(first, lookup(table, bytes));
  sink(first + 1, lookup(table, bytes >> 4));
}

template <>
struct Decoder<DType::q4_0> {
  using Block = BlockQ4_0;
  static constexpr int kElements = kSmallBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    decode_nibbles(block.qs, (nibble_values() - Lanes::set(8.0f)) * Lanes::set(widen_f16(block.d)), 0, sink);
  }
};

template <>
struct Decoder<DType::q4_1> {
  using Block = BlockQ4_1;
  static constexpr int kElements = kSmallBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    const Lanes d = Lanes::set(widen_f16(block.d));
    decode_nibbles(block.qs, fma(d, nibble_values(), Lanes::set(widen_f16(block.m))), 0, sink);
  }
};

template <>
struct Decoder<DType::iq4_nl> {
  using Block = BlockIq4Nl;
  static constexpr int kElements = kSmallBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    decode_nibbles(block.qs, iq4_values() * Lanes::set(widen_f16(block.d)), 0, sink);
  }
};

/// Elements 16 i ... of a block with five-bit elements; qh holds the fifth bits of its 32 elements.
inline IntLanes five_bits(const uint8_t* qs, const uint8_t* qh, int i) {
  const uint16_t fifth = static_cast<uint16_t>(qh[2 * i] | qh[2 * i + 1] << 8);
  const IntLanes low = (IntLanes::load_u8(qs) >> 4 * i) & IntLanes::set(15);
  return low | IntLanes::where(fifth, 16);
}

template <>
struct Decoder<DType::q5_0> {
  using Block = BlockQ5_0;
  static constexpr int kElements = kSmallBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    const Lanes d = Lanes::set(widen_f16(block.d));
    for (int i = 0; i < 2; ++i)
      sink(i, to_float(five_bits(block.qs, block.qh, i) - IntLanes::set(16)) * d);
  }
};

template <>
struct Decoder<DType::q5_1> {
  using Block = BlockQ5_1;
  static constexpr int kElements = kSmallBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    const Lanes d = Lanes::set(widen_f16(block.d));
    const Lanes m = Lanes::set(widen_f16(block.m));
    for (int i = 0; i < 2; ++i)
      sink(i, fma(to_float(five_bits(block.qs, block.qh, i)), d, m));
  }
};

template <>
struct Decoder<DType::q8_0> {
  using Block = BlockQ8_0;
  static constexpr int kElements = kSmallBlock;
  template <class Sink>
  static void decode(const Block& block, Sink&& sink) {
    const Lanes d = Lanes::set(widen_f16(block.d));
    for (int i = 0; i < 2; ++i)
      sink(i, to_float(IntLanes::load_i8(block.qs + 16 * i)) * d);
  }
};

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
