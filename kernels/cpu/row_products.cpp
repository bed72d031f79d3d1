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
    : cols_(cols),
      padded_cols_(round_up(cols, kLanes)),
      pass_sums_(std::min(tokens, kPassTokens) * kPassRows),
      scratch_floats_(kPanelFloats + 2 * pass_sums_) {
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

void ProductMemory::pack(const ProductKernels& kernels, int64_t begin, int64_t count, int32_t thread,
                         int32_t threads) const {
  for_each_token_set(kernels, begin, count, [&](int64_t first, const TokenSet& tokens) {
    if (tokens.size() == 1) return;
    for (int64_t tile = 0; tile < tokens.packed.tiles; ++tile) {
      if ((first + tile) % threads == thread) kernels.pack_tile(tokens.packed, tile, tokens.x, cols_);
    }
  });
}

namespace {

/// The encoded rows that multiply_batch decodes after those of `row` and `first_col`.
NextPanel next_panel(const WeightRows& rows, int64_t row, int64_t first_col, int64_t tile_rows) {
  const int64_t row_bytes = static_cast<int64_t>(rows.row_bytes);
  int64_t next_row = row + tile_rows;
  int64_t next_col = first_col;
  if (next_row >= rows.rows) {
    next_col += kColumnBlock;
    if (next_col < rows.cols) {
      next_row = 0;
    } else {
      next_col = 0;  // most likely the rows behind these follow
    }
  }
  const std::byte* data = rows.data + next_row * row_bytes + row_bytes * next_col / rows.cols;
  if (rows.cols > kColumnBlock) return {data, row_bytes, tile_rows};
  return {data, kFetchedBytes,
          round_up(tile_rows * row_bytes, kFetchedBytes) / kFetchedBytes};  // whole rows, end to end
}

/// multiply_rows for two tokens and more.
void multiply_batch(const ProductKernels& kernels, const TypeKernels& type, const WeightRows& rows,
                    const PackedTokens& tokens, float* panel, float* sums) {
  for (int64_t first_col = 0; first_col < rows.cols; first_col += kColumnBlock) {
    for (int64_t row = 0; row < rows.rows; row += kernels.tile_rows) {
      type.decode_panel(rows, row, first_col, panel);
      const NextPanel next = next_panel(rows, row, first_col, kernels.tile_rows);
      kernels.multiply_panel(panel, tokens, first_col, next, sums + row, kPassRows);
    }
  }
}

}  // namespace

void multiply_rows(const ProductKernels& kernels, const Weight& weight, int64_t index, RowRange range,
                   const TokenSet& tokens, float* panel, float* sums) {
  const size_t stride = row_bytes(weight.dtype, weight.cols);
  const std::byte* data =
      static_cast<const std::byte*>(weight.data) + stride * (index * weight.rows + range.begin);
  const WeightRows rows{data, stride, range.size(), weight.cols};
  const TypeKernels& type = kernels.of(weight.dtype);
  if (tokens.size() == 1) {
    type.dot(rows, tokens.x[0], sums);
  } else {
    multiply_batch(kernels, type, rows, tokens.packed, panel, sums);
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
