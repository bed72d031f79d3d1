#include "kernels/cpu/product/row_products.h"

#include <algorithm>

#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/product/linear.h"

namespace minfer::cpu {
namespace {

constexpr int64_t kUnitRows = 16;
/// Below this many multiply-adds (a few microseconds), sharing takes longer than the work.
constexpr int64_t kMinPieceProducts = 32768;
/// Parts with fewer rows lose too much in register tiles that are not full.
constexpr int64_t kFewRows = 64;

int64_t div_up(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit;
}

int64_t round_up(int64_t value, int64_t unit) {
  return div_up(value, unit) * unit;
}

}  // namespace

RowParts::RowParts(int64_t rows, int64_t products, int64_t sets, int32_t threads)
    : rows_(rows), units_(div_up(rows, kUnitRows)) {
  const int64_t pieces = std::min(kPiecesPerThread * threads, products / kMinPieceProducts);
  const int64_t worthwhile = std::max(div_up(threads, sets), rows / kFewRows);
  const int64_t wanted = std::max(std::min(div_up(pieces, sets), worthwhile), div_up(rows, kPassRows));
  count_ = std::clamp<int64_t>(wanted < threads ? wanted : round_up(wanted, threads), 1,
                               std::max<int64_t>(units_, 1));
}

IndexRange RowParts::operator[](int64_t part) const {
  const IndexRange units = part_of(units_, part, count_);
  return {units.begin * kUnitRows, std::min(rows_, units.end * kUnitRows)};
}

ProductMemory::ProductMemory(const OpContext& context, int64_t tokens, int64_t cols, size_t extra_bytes)
    : tokens_(tokens),
      cols_(cols),
      padded_cols_(round_up(cols, kLanes)),
      pass_sums_(std::min(tokens, kPassTokens) * kPassRows),
      scratch_floats_(kPanelFloats + 2 * pass_sums_) {
  const int64_t threads = context.pool->threads();
  const int64_t floats = threads * scratch_floats_ + tokens * padded_cols_;
  const size_t pointer_bytes = static_cast<size_t>(round_up(tokens * sizeof(float*), Workspace::kAlignment));
  scratch_ = static_cast<float*>(
      context.workspace->take(static_cast<size_t>(floats) * sizeof(float) + pointer_bytes + extra_bytes));
  packed_ = scratch_ + threads * scratch_floats_;
  x_ = reinterpret_cast<const float**>(packed_ + tokens * padded_cols_);
  extra_ = reinterpret_cast<std::byte*>(x_) + pointer_bytes;
}

TokenSet ProductMemory::token_set(const ProductKernels& kernels, IndexRange range, int64_t set) const {
  const IndexRange tokens = part_of(range.size(), set, num_sets(range.size()));
  const int64_t first = range.begin + tokens.begin;
  const int64_t tiles = div_up(tokens.size(), kernels.tile_tokens);
  return {first, x_ + first, {packed_ + first * padded_cols_, tokens.size(), padded_cols_, tiles}};
}

void ProductMemory::pack(const ProductKernels& kernels, IndexRange range, int64_t part, int64_t parts) const {
  for (int64_t set = 0; set < num_sets(range.size()); ++set) {
    const TokenSet tokens = token_set(kernels, range, set);
    if (tokens.size() == 1) continue;
    for (int64_t tile = 0; tile < tokens.packed.tiles; ++tile) {
      if ((tokens.first + tile) % parts == part) kernels.pack_tile(tokens.packed, tile, tokens.x, cols_);
    }
  }
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

void multiply_rows(const ProductKernels& kernels, const Weight& weight, int64_t index, IndexRange range,
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

void dequantise_row(const void* row, DType dtype, int64_t cols, Isa isa, float* out) {
  row_bytes(dtype, cols);  // throws unless the row is whole blocks
  product_kernels(isa).of(dtype).dequantise(static_cast<const std::byte*>(row), cols, out);
}

}  // namespace minfer::cpu
