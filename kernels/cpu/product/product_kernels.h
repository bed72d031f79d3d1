#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/activation.h"
#include "kernels/cpu/lanes/isa.h"
#include "kernels/dtype.h"

/// The inner loops of the weight products, one set for each instruction set.
///
/// There are two ways to multiply rows of a weight with tokens, equal in every bit (linear.h gives the order
/// of sums). One token: `dot` decodes a block and multiplies it at once; it streams the weight and stores
/// nothing else. Several: `decode_panel` writes the f32 values of a few rows x 1,024 columns to a buffer that
/// stays in the first-level cache (24 KiB), and `multiply_panel` multiplies it with all tokens, one register
/// tile of rows x tokens at a time.
namespace minfer::cpu {

/// Columns whose products are summed lane by lane before the lanes are folded.
inline constexpr int64_t kColumnBlock = 1024;

/// The most rows of the register tile, on any instruction set.
inline constexpr int64_t kMaxTileRows = 6;
/// Floats of a panel.
inline constexpr int64_t kPanelFloats = kMaxTileRows * kColumnBlock;

/// Rows of a weight matrix, `row_bytes` apart.
struct WeightRows {
  const std::byte* data;
  size_t row_bytes;
  int64_t rows;
  int64_t cols;
};

/// Tokens packed for multiply_panel: tiles of up to tile_tokens tokens, each [padded cols / 16, tokens of the
/// tile, 16], columns padded with zeros to a multiple of 16. Tile i holds tokens [begin(i), begin(i + 1)).
struct PackedTokens {
  float* data;
  int64_t tokens;
  int64_t padded_cols;
  int64_t tiles;

  int64_t begin(int64_t tile) const { return tile * tokens / tiles; }
};

/// Memory that multiply_panel fetches into the second-level cache while it works, as far as it has tiles:
/// tile number i < pieces fetches kFetchedBytes (less for a short column block) from data + i * stride.
struct NextPanel {
  const std::byte* data;
  int64_t stride;
  int64_t pieces;
};
inline constexpr int64_t kCacheLine = 64;
/// A cache line for each step of 16 columns.
inline constexpr int64_t kFetchedBytes = kColumnBlock / 16 * kCacheLine;

/// out[i] = activation(gate[i] + gate_bias[i], up[i] + up_bias[i]) for i < count.
struct GatedRows {
  GateActivation activation;
  const float* gate;
  const float* up;
  const float* gate_bias;  ///< or null
  const float* up_bias;    ///< or null
  int64_t count;
};

/// Kernels of one weight type.
struct TypeKernels {
  /// out[k] = row[k], `cols` elements.
  void (*dequantise)(const std::byte* row, int64_t cols, float* out);
  /// sums[r] = rows[r] . x; x has `cols` elements.
  void (*dot)(const WeightRows& rows, const float* x, float* sums);
  /// Rows [row, row + tile_rows), columns [first_col, first_col + kColumnBlock) or as many as there are,
  /// padded with zeros to a multiple of 16, as panel [steps of 16 columns, tile_rows, 16]. Rows beyond the
  /// last repeat it.
  void (*decode_panel)(const WeightRows& rows, int64_t row, int64_t first_col, float* panel);
};

/// The types that products take are those up to fp8.
inline constexpr int kNumKernelTypes = static_cast<int>(DType::fp8) + 1;

struct ProductKernels {
  int64_t tile_rows;                               ///< rows of the register tile
  int64_t tile_tokens;                             ///< tokens of the register tile, at most
  std::array<TypeKernels, kNumKernelTypes> types;  ///< by DType

  /// Writes tile `tile` of `tokens`; x[t] points to the elements of token t.
  void (*pack_tile)(const PackedTokens& tokens, int64_t tile, const float* const* x, int64_t cols);
  /// sums[t * stride + r] = or += (first_col > 0) panel row r . token t over the panel's columns, for
  /// r < tile_rows. Fetches `next` into the cache meanwhile, as far as there is time.
  void (*multiply_panel)(const float* panel, const PackedTokens& tokens, int64_t first_col,
                         const NextPanel& next, float* sums, int64_t stride);
  /// See GatedRows.
  void (*activate)(const GatedRows& rows, float* out);

  const TypeKernels& of(DType dtype) const { return types[static_cast<size_t>(dtype)]; }
};

extern const ProductKernels kProductKernelsPortable, kProductKernelsAvx2, kProductKernelsAvx512;

inline const ProductKernels& product_kernels(Isa isa) {
  return choose(isa, kProductKernelsPortable, kProductKernelsAvx2, kProductKernelsAvx512);
}

}  // namespace minfer::cpu
