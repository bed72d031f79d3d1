#pragma once

#include <cstring>
#include <utility>

#include "kernels/cpu/lanes/vector_math.h"
#include "kernels/cpu/product/grid_decoders.h"
#include "kernels/cpu/product/product_kernels.h"
#include "kernels/cpu/product/register_tile.h"

// Definitions behind product_kernels.h, included by one file per instruction set.
namespace minfer::cpu {
inline namespace MINFER_ISA {

/// Rows that `dot` multiplies side by side. Quantised types need independent sums to hide the latency of the multiply-adds. Plain types are
/// bound by memory: one row at a time is one stream, which the processor's own prefetcher follows best.
template <DType type>
inline constexpr int kDotRows = type == DType::f32 || type == DType::f16 || type == DType::bf16 ? 1 : 4;

static_assert(kTileRows <= kMaxTileRows);

template <DType type>
using BlockOf = typename Decoder<type>::Block;

inline int64_t smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}

template <DType type>
const BlockOf<type>* blocks_of(const WeightRows& rows, int64_t row) {
  return reinterpret_cast<const BlockOf<type>*>(rows.data + smaller(row, rows.rows - 1) * rows.row_bytes);
}

/// The first `cols` elements of a block, with zeros behind. Only plain types end within a block, and fp8, whose block has the zeros.
template <DType type>
BlockOf<type> partial_block(const BlockOf<type>& block, int64_t cols) {
  if constexpr (type == DType::fp8) return block;
  BlockOf<type> copy = {};
  std::memcpy(&copy, &block, sizeof copy / Decoder<type>::kElements * static_cast<size_t>(cols));
  return copy;
}

/// Fetches `bytes` bytes from `begin` on.
template <size_t bytes>
MINFER_ALWAYS_INLINE inline void prefetch(const void* begin) {
  for (size_t offset = 0; offset < bytes; offset += kCacheLine)
    __builtin_prefetch(static_cast<const char*>(begin) + offset);
}

template <DType type>
void dequantise(const std::byte* row, int64_t cols, float* out) {
  constexpr int64_t kElements = Decoder<type>::kElements;
  const auto* block = reinterpret_cast<const BlockOf<type>*>(row);
  int64_t k = 0;
  for (; k + kElements <= cols; k += kElements) {
    decode_block<type>(*block++, [&](int i, Lanes w) MINFER_ALWAYS_INLINE { w.store(out + k + i * kLanes); });
  }
  if (k < cols) {
    decode_block<type>(partial_block<type>(*block, cols - k),
                       [&](int i, Lanes w) { store_some(w, out + k + i * kLanes, cols - k - i * kLanes); });
  }
}

/// acc[r] += block `index` of rows[r] . x, whose columns it covers. The rows take turns, chunk by chunk, so
/// that their chains of multiply-adds overlap.
///
/// If rows take turns, the rows behind them are fetched in the order of memory, not in the order of use: the processor's own prefetcher
/// follows then. On AMD's Zen 4 that reads up to twice as fast (q8_0: 22 instead of 11 GB/s a core). bf16 in a mapped file (pages of 4 KB):
/// one core reads 12 GB/s by four rows, 20 if so fetched, and 25 by one row at a time without fetching.
template <DType type>
MINFER_ALWAYS_INLINE inline void dot_block(const BlockOf<type>* const (&rows)[kDotRows<type>], int64_t index,
                                           const float* x, size_t prefetch_bytes,
                                           Lanes (&acc)[kDotRows<type>]) {
  constexpr int kRows = kDotRows<type>;
  if constexpr (kRows > 1) {
    constexpr size_t kBytes = kRows * sizeof(BlockOf<type>);
    prefetch<kBytes>(reinterpret_cast<const std::byte*>(rows[0]) + prefetch_bytes + index * kBytes);
  }
  typename Decoder<type>::State states[kRows];
  unroll<kRows>([&](auto r) MINFER_ALWAYS_INLINE { Decoder<type>::unpack(rows[r][index], states[r]); });
  unroll<Decoder<type>::kChunks>([&](auto chunk) MINFER_ALWAYS_INLINE {
    unroll<kRows>([&](auto r) MINFER_ALWAYS_INLINE {
      Decoder<type>::decode(rows[r][index], states[r], chunk, [&](int i, Lanes w) MINFER_ALWAYS_INLINE {
        acc[r] = fma(w, Lanes::load(x + i * kLanes), acc[r]);
      });
    });
  });
}

/// sums[r] = or += (first_col > 0) rows[r] . x over the columns [first_col, end), at most kColumnBlock of
/// them.
template <DType type>
inline void dot_columns(const BlockOf<type>* const (&rows)[kDotRows<type>], const float* x, int64_t first_col,
                        int64_t end, size_t prefetch_bytes, float (&sums)[kDotRows<type>]) {
  constexpr int64_t kElements = Decoder<type>::kElements;
  constexpr int kRows = kDotRows<type>;
  Lanes acc[kRows];
  unroll<kRows>([&](auto r) MINFER_ALWAYS_INLINE { acc[r] = Lanes::set(0.0f); });
  const int64_t end_block = end / kElements;
  for (int64_t block = first_col / kElements; block < end_block; ++block) {
    dot_block<type>(rows, block, x + block * kElements, prefetch_bytes, acc);
  }
  if (const int64_t k = end_block * kElements; k < end) {
    unroll<kRows>([&](auto r) MINFER_ALWAYS_INLINE {
      decode_block<type>(partial_block<type>(rows[r][end_block], end - k),
                         [&](int i, Lanes w) MINFER_ALWAYS_INLINE {
                           acc[r] = fma(w, load_some(x + k + i * kLanes, end - k - i * kLanes), acc[r]);
                         });
    });
  }
  unroll<kRows>([&](auto r) MINFER_ALWAYS_INLINE {
    const float sum = reduce_add(acc[r]);
    sums[r] = first_col > 0 ? sums[r] + sum : sum;
  });
}

template <DType type>
void dot(const WeightRows& weight, const float* x, float* sums) {
  constexpr int kRows = kDotRows<type>;
  for (int64_t row = 0; row < weight.rows; row += kRows) {
    const BlockOf<type>* rows[kRows];
    for (int r = 0; r < kRows; ++r)
      rows[r] = blocks_of<type>(weight, row + r);
    float row_sums[kRows];
    for (int64_t first_col = 0; first_col < weight.cols; first_col += kColumnBlock) {
      dot_columns<type>(rows, x, first_col, smaller(first_col + kColumnBlock, weight.cols),
                        kRows * weight.row_bytes, row_sums);
    }
    std::memcpy(sums + row, row_sums, static_cast<size_t>(smaller(kRows, weight.rows - row)) * sizeof(float));
  }
}

template <DType type>
void decode_panel(const WeightRows& weight, int64_t row, int64_t first_col, float* panel) {
  constexpr int64_t kElements = Decoder<type>::kElements;
  constexpr int64_t kStep = kTileRows * kLanes;
  const int64_t cols = smaller(kColumnBlock, weight.cols - first_col);
  for (int r = 0; r < kTileRows; ++r) {
    const BlockOf<type>* block = blocks_of<type>(weight, row + r) + first_col / kElements;
    float* out = panel + r * kLanes;
    int64_t k = 0;
    for (; k + kElements <= cols; k += kElements, ++block, out += kElements * kTileRows) {
      decode_block<type>(*block, [&](int i, Lanes w) MINFER_ALWAYS_INLINE { w.store(out + i * kStep); });
    }
    if (k < cols) {
      decode_block<type>(partial_block<type>(*block, cols - k), [&](int i, Lanes w) {
        if (k + i * kLanes < cols) w.store(out + i * kStep);
      });
    }
  }
}

inline void pack_tile(const PackedTokens& tokens, int64_t tile, const float* const* x, int64_t cols) {
  const int64_t begin = tokens.begin(tile);
  const int64_t count = tokens.begin(tile + 1) - begin;
  float* out = tokens.data + begin * tokens.padded_cols;
  int64_t k = 0;
  for (; k + kLanes <= cols; k += kLanes) {
    for (int64_t t = 0; t < count; ++t, out += kLanes)
      Lanes::load(x[begin + t] + k).store(out);
  }
  if (k < cols) {
    for (int64_t t = 0; t < count; ++t, out += kLanes)
      load_some(x[begin + t] + k, cols - k).store(out);
  }
}

using MultiplyTile = void (*)(const float* panel, const float* x, int64_t steps, bool add, float* sums,
                              int64_t stride, const std::byte* next);

/// multiply_tile for 1, 2, ... tokens.
struct TileFunctions {
  MultiplyTile by_tokens[kTileTokens];
};
template <int... index>
constexpr TileFunctions tile_functions(std::integer_sequence<int, index...>) {
  return {{multiply_tile<index + 1>...}};
}
inline constexpr TileFunctions kTileFunctions =
    tile_functions(std::make_integer_sequence<int, kTileTokens>());

inline void multiply_panel(const float* panel, const PackedTokens& tokens, int64_t first_col,
                           const NextPanel& next, float* sums, int64_t stride) {
  const int64_t steps = smaller(kColumnBlock, tokens.padded_cols - first_col) / kLanes;
  for (int64_t tile = 0; tile < tokens.tiles; ++tile) {
    const int64_t begin = tokens.begin(tile);
    const int64_t count = tokens.begin(tile + 1) - begin;
    const float* x = tokens.data + begin * tokens.padded_cols + first_col * count;
    // When all is fetched, tiles touch the panel, which is in the cache.
    const void* fetched =
        tile < next.pieces ? static_cast<const void*>(next.data + tile * next.stride) : panel;
    kTileFunctions.by_tokens[count - 1](panel, x, steps, first_col > 0, sums + begin * stride, stride,
                                        static_cast<const std::byte*>(fetched));
  }
}

/// Element i and those behind it.
inline Lanes load_biased(const float* values, const float* bias, int64_t i, int64_t count) {
  const Lanes sums = load_some(values + i, count - i);
  return bias == nullptr ? sums : sums + load_some(bias + i, count - i);
}

template <GateActivation activation>
void activate_as(const GatedRows& rows, float* out) {
  for (int64_t i = 0; i < rows.count; i += kLanes) {
    const Lanes gate = load_biased(rows.gate, rows.gate_bias, i, rows.count);
    const Lanes up = load_biased(rows.up, rows.up_bias, i, rows.count);
    store_some(gated<activation>(gate, up), out + i, rows.count - i);
  }
}

inline void activate(const GatedRows& rows, float* out) {
  switch (rows.activation) {
    case GateActivation::silu:
      return activate_as<GateActivation::silu>(rows, out);
    case GateActivation::gelu_tanh:
      return activate_as<GateActivation::gelu_tanh>(rows, out);
    case GateActivation::gelu:
      return activate_as<GateActivation::gelu>(rows, out);
    case GateActivation::relu:
      return activate_as<GateActivation::relu>(rows, out);
    case GateActivation::clamped_swiglu:
      return activate_as<GateActivation::clamped_swiglu>(rows, out);
  }
}

template <DType type>
constexpr TypeKernels type_kernels() {
  return {dequantise<type>, dot<type>, decode_panel<type>};
}

template <int... type>
constexpr ProductKernels product_kernels_of(std::integer_sequence<int, type...>) {
  return {kTileRows, kTileTokens,    {type_kernels<static_cast<DType>(type)>()...},
          pack_tile, multiply_panel, activate};
}

/// The table of this instruction set.
constexpr ProductKernels make_product_kernels() {
  return product_kernels_of(std::make_integer_sequence<int, kNumKernelTypes>());
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
