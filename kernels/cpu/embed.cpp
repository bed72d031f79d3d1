#include <cstring>

#include "kernels/cpu/check.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/product/linear.h"

namespace minfer::cpu {

void embed(const int32_t* token_ids, const Weight& table, const Tensor& out, const OpContext& context) {
  check_f32("embed: out", out, out.rows, table.cols);
  const size_t bytes = row_bytes(table.dtype, table.cols);
  for (int64_t t = 0; t < out.rows; ++t) {
    if (token_ids[t] < 0 || token_ids[t] >= table.rows) {
      fail("embed: token {} has id {}, expected 0 to {}", t, token_ids[t], table.rows - 1);
    }
  }
  for_each_row(out, context, [&](int64_t t) {
    const char* row = static_cast<const char*>(table.data) + static_cast<size_t>(token_ids[t]) * bytes;
    dequantise_row(row, table.dtype, table.cols, context.isa, out.f32_row(t));
  });
}

void gather_rows(const Tensor& x, const int32_t* rows, const Tensor& out, const OpContext& context) {
  check_f32("gather_rows: x", x, x.rows, x.cols);
  check_f32("gather_rows: out", out, out.rows, x.cols);
  for (int64_t i = 0; i < out.rows; ++i) {
    if (rows[i] < 0 || rows[i] >= x.rows) {
      fail("gather_rows: entry {} names row {}, expected 0 to {}", i, rows[i], x.rows - 1);
    }
  }
  for_each_row(out, context, [&](int64_t i) {
    std::memcpy(out.f32_row(i), x.f32_row(rows[i]), static_cast<size_t>(x.cols) * sizeof(float));
  });
}

}  // namespace minfer::cpu
