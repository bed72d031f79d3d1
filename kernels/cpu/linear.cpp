#include "kernels/cpu/linear.h"

#include "kernels/cpu/check.h"
#include "kernels/cpu/row_products.h"
#include "kernels/error.h"

namespace minfer::cpu {
namespace {

void check(const LinearArgs& args) {
  check_f32("linear x", args.x, args.x.rows, args.x.cols);
  int64_t rows = 0;
  for (const Weight& weight : args.weights) {
    check_weight("linear weight", weight, 1, weight.rows, args.x.cols);
    rows += weight.rows;
  }
  check_f32("linear out", args.out, args.x.rows, rows);
  if (args.biases.empty()) return;
  if (args.biases.size() != args.weights.size()) {
    fail("linear: {} biases, expected none or {}", args.biases.size(), args.weights.size());
  }
  for (size_t i = 0; i < args.biases.size(); ++i) {
    if (args.biases[i]) check_vector("linear bias", args.biases[i], args.weights[i].rows);
  }
}

/// `tensor` from a row and a column on.
Tensor block_of(const Tensor& tensor, int64_t row, int64_t col) {
  return {tensor.f32_row(row) + col, tensor.dtype, tensor.rows - row, tensor.cols - col, tensor.stride};
}

/// Writes the sums of weight rows `range` with `tokens` tokens to `out`, which begins at the first token and
/// the weight's first column.
void store_sums(const float* sums, RowRange range, int64_t tokens, const float* bias, bool add_to_out,
                const Tensor& out) {
  for (int64_t t = 0; t < tokens; ++t) {
    const float* sum = sums + t * kPassRows;
    float* out_row = out.f32_row(t) + range.begin;
    for (int64_t r = 0; r < range.size(); ++r) {
      const float value = bias == nullptr ? sum[r] : sum[r] + bias[range.begin + r];
      out_row[r] = add_to_out ? out_row[r] + value : value;
    }
  }
}

}  // namespace

void linear(const LinearArgs& args, Isa isa, int32_t threads, Workspace& workspace) {
  check(args);
  const int64_t tokens = args.x.rows;
  if (tokens == 0) return;
  const ProductKernels& kernels = product_kernels(isa);
  const ProductMemory memory(workspace, tokens, args.x.cols, threads);
  for (int64_t t = 0; t < tokens; ++t)
    memory.x()[t] = args.x.f32_row(t);
  run_parallel(threads, [&](int32_t thread, int32_t team) {
    memory.pack(kernels, 0, tokens, thread, team);
    if (tokens > 1) barrier();
    float* sums = memory.sums(thread, 0);
    int64_t first_col = 0;
    for (size_t i = 0; i < args.weights.size(); ++i) {
      const Weight& weight = args.weights[i];
      const float* bias = args.biases.empty() ? nullptr : static_cast<const float*>(args.biases[i].data);
      for_each_pass(rows_of_thread(weight.rows, thread, team), [&](RowRange range) {
        memory.for_each_token_set(kernels, 0, tokens, [&](int64_t first, const TokenSet& set) {
          multiply_rows(kernels, weight, 0, range, set, memory.panel(thread), sums);
          store_sums(sums, range, set.size(), bias, args.add_to_out, block_of(args.out, first, first_col));
        });
      });
      first_col += weight.rows;
    }
  });
}

}  // namespace minfer::cpu
