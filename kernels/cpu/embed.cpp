#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/product/linear.h"

namespace minfer::cpu {

void embed(const EmbedArgs& args, const OpContext& context) {
  const auto& [token_ids, table, first_token, vocab_size, scale, out] = args;
  check_f32("embed: out", out, out.rows, table.cols);
  const size_t bytes = row_bytes(table.dtype, table.cols);
  for (int64_t t = 0; t < out.rows; ++t) {
    if (token_ids[t] < 0 || token_ids[t] >= vocab_size) {
      fail("embed: token {} has id {}, expected 0 to {}", t, token_ids[t], vocab_size - 1);
    }
  }
  for_each_row(args.out, context, [&](int64_t t) {
    const int64_t row = int64_t{args.token_ids[t]} - args.first_token;
    float* to = args.out.f32_row(t);
    if (row < 0 || row >= args.table.rows) {
      std::fill_n(to, args.table.cols, 0.0f);
    } else {
      dequantise_row(static_cast<const char*>(args.table.data) + static_cast<size_t>(row) * bytes,
                     args.table.dtype, args.table.cols, context.isa, to);
      for (int64_t i = 0; args.scale != 1.0f && i < args.table.cols; ++i)
        to[i] *= args.scale;
    }
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

void spread_columns(const SpreadColumnsArgs& args, const OpContext& context) {
  const auto& [x, columns, out] = args;
  check_f32("spread_columns: x", x, x.rows, x.cols);
  check_f32("spread_columns: out", out, x.rows, out.cols);
  check_vector("spread_columns: columns", columns, out.cols);
  const auto* const column_of = static_cast<const float*>(columns.data);
  for_each_row(out, context, [&](int64_t t) {
    const float* from = args.x.f32_row(t);
    float* to = args.out.f32_row(t);
    for (int64_t i = 0; i < args.out.cols; ++i) {
      const auto column = static_cast<int64_t>(column_of[i]);
      to[i] = column < 0 ? -std::numeric_limits<float>::infinity() : from[column];
    }
  });
}

}  // namespace minfer::cpu
