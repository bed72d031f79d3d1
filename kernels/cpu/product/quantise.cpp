#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/fp8.h"
#include "kernels/half.h"

namespace minfer::cpu {
namespace {

uint32_t largest_magnitude(std::span<const float> row) {
  uint32_t largest = 0;
  for (const float value : row)
    largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7fffffffu);
  return largest;
}

void quantise_row(std::span<const float> row, BlockFp8* out) {
  const uint16_t scale_bits = fp8_scale(largest_magnitude(row));
  const float scale = bf16_to_f32(scale_bits);
  for (size_t first = 0; first < row.size(); first += kFp8Block, ++out) {
    *out = {.d = scale_bits, .qs = {}};
    if (!has_fp8_codes(scale_bits)) continue;
    const size_t count = std::min<size_t>(kFp8Block, row.size() - first);
    for (size_t i = 0; i < count; ++i)
      out->qs[i] = f32_to_e4m3(row[first + i] / scale);
  }
}

}  // namespace

void quantise_to_fp8(const HostTensor& tensor, Isa isa, ThreadPool& pool, BlockFp8* out) {
  if (is_quantised(tensor.dtype) || tensor.dtype == DType::f8_e4m3)
    fail("tensor {}: {} to fp8, expected f32, f16 or bf16", tensor.name, name(tensor.dtype));
  const auto blocks_of_row = static_cast<int64_t>(row_bytes(DType::fp8, tensor.cols) / sizeof(BlockFp8));
  const int64_t rows = tensor.count * tensor.rows;
  const int64_t pieces = std::min<int64_t>(rows, 16 * pool.threads());
  pool.parallel_for(pieces, [&](int64_t piece, int32_t) {
    std::vector<float> values(static_cast<size_t>(tensor.cols));
    const IndexRange part = part_of(rows, piece, pieces);
    for (int64_t row = part.begin; row < part.end; ++row) {
      dequantise_row(tensor.row(row / tensor.rows, row % tensor.rows), tensor.dtype, tensor.cols, isa,
                     values.data());
      quantise_row(values, out + row * blocks_of_row);
    }
  });
}

}  // namespace minfer::cpu
