#include "kernels/cpu/row_products.h"

#include <algorithm>

#include "kernels/error.h"

namespace minfer::cpu {
namespace {

constexpr int64_t kLanes = 16;

int64_t round_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

RowRange rows_of_thread(int64_t rows, int32_t thread, int32_t threads) {
  constexpr int64_t kUnit = 16;
  const int64_t units = round_up(rows, kUnit) / kUnit;
  return {std::min(rows, units * thread / threads * kUnit),
          std::min(rows, units * (thread + 1) / threads * kUnit)};
}

ProductMemory::ProductMemory(Workspace& workspace, int64_t tokens, int64_t cols, int32_t threads,
                             size_t extra_bytes)
    : tokens_(tokens),
      cols_(cols),
      padded_cols_(round_up(cols, kLanes)),
      scratch_floats_(kPanelFloats + 2 * tokens * kPassRows) {
  const int64_t floats = threads * scratch_floats_ + tokens * padded_cols_;
  const size_t pointer_bytes = static_cast<size_t>(round_up(tokens * sizeof(float*), Workspace::kAlignment));
  scratch_ = static_cast<float*>(
      workspace.take(static_cast<size_t>(floats) * sizeof(float) + pointer_bytes + extra_bytes));
  packed_ = scratch_ + threads * scratch_floats_;
  x_ = reinterpret_cast<const float**>(packed_ + tokens * padded_cols_);
  extra_ = reinterpret_cast<std::byte*>(x_) + pointer_bytes;
}

TokenSet ProductMemory::token_set(const ProductKernels& kernels, int64_t begin, int64_t count) const {
  const int64_t tiles = round_up(count, kernels.tile_tokens) / kernels.tile_tokens;
  return {x_ + begin, {packed_ + begin * padded_cols_, count, padded_cols_, tiles}};
}

void ProductMemory::pack(const ProductKernels& kernels, const TokenSet& tokens, int32_t thread,
                         int32_t threads) const {
  if (tokens.size() == 1) return;
  for (int64_t tile = thread; tile < tokens.packed.tiles; tile += threads) {
    kernels.pack_tile(tokens.packed, tile, tokens.x, cols_);
  }
}

void multiply_rows(const ProductKernels& kernels, const Weight& weight, int64_t index, RowRange range,
                   const TokenSet& tokens, float* panel, float* sums) {
  const size_t stride = row_bytes(weight.dtype, weight.cols);
  const std::byte* data =
      static_cast<const std::byte*>(weight.data) + stride * (index * weight.rows + range.begin);
  const WeightRows rows{data, stride, range.size(), weight.cols};
  const TypeKernels& type = kernels.of(weight.dtype);
  if (tokens.size() == 1) {
    type.dot(rows, tokens.x[0], sums);
    return;
  }
  const int64_t tile_bytes = kernels.tile_rows * static_cast<int64_t>(stride);
  for (int64_t row = 0; row < rows.rows; row += kernels.tile_rows) {
    const std::byte* next_rows = data + (row + kernels.tile_rows) * stride;
    for (int64_t first_col = 0; first_col < weight.cols; first_col += kColumnBlock) {
      type.decode_panel(rows, row, first_col, panel);
      // While it multiplies a column block, a tile of rows fetches that share of the next rows.
      const int64_t fetched = tile_bytes * first_col / weight.cols;
      const int64_t end_col = std::min(first_col + kColumnBlock, weight.cols);
      const std::span next(next_rows + fetched,
                           static_cast<size_t>(tile_bytes * end_col / weight.cols - fetched));
      kernels.multiply_panel(panel, tokens.packed, first_col, next, sums + row, kPassRows);
    }
  }
}

void check_weight(std::string_view what, const Weight& weight, int64_t count, int64_t rows, int64_t cols) {
  if (weight.count != count || weight.rows != rows || weight.cols != cols) {
    fail("{}: {} x [{}, {}], expected {} x [{}, {}]", what, weight.count, weight.rows, weight.cols, count,
         rows, cols);
  }
  row_bytes(weight.dtype, cols);
}

}  // namespace minfer::cpu
