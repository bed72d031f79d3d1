#include "kernels/cpu/product/linear.h"

#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cpu/product/row_products.h"

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

/// The part of `tensor` that begins at a row and a column.
Tensor block_of(const Tensor& tensor, int64_t row, int64_t col) {
  return {tensor.f32_row(row) + col, tensor.dtype, tensor.rows - row, tensor.cols - col, tensor.stride};
}

/// Writes the products of weight rows `range` with `tokens` tokens to `out`, which begins at the first token
/// and the weight's first column.
void store_sums(const float* sums, IndexRange range, int64_t tokens, const float* bias, bool add_to_out,
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

/// Calls body(i, rows, first_col) for each weight that has rows among the output columns `cols`: `rows` of
/// weight i, which begins at column `first_col` of the output.
template <class Body>
void for_each_weight(const LinearArgs& args, IndexRange cols, const Body& body) {
  int64_t first_col = 0;
  for (size_t i = 0; i < args.weights.size(); ++i) {
    const int64_t rows = args.weights[i].rows;
    const IndexRange own{std::max<int64_t>(cols.begin - first_col, 0), std::min(cols.end - first_col, rows)};
    if (own.size() > 0) body(i, own, first_col);
    first_col += rows;
  }
}

}  // namespace

void linear(const LinearArgs& args, const OpContext& context) {
  check(args);
  check_no_norm("linear", args.norm);
  const int64_t tokens = args.x.rows;
  if (tokens == 0) return;
  const ProductKernels& kernels = product_kernels(context.isa);
  const ProductMemory memory(context, tokens, args.x.cols);
  for (int64_t t = 0; t < tokens; ++t)
    memory.x()[t] = args.x.f32_row(t);
  pack_tokens(kernels, tokens, memory, context);
  const int64_t sets = ProductMemory::num_sets(tokens);
  const RowParts parts(args.out.cols, args.out.cols * args.x.cols * tokens, sets, context.pool->threads());
  context.pool->parallel_for(parts.count() * sets, [&](int64_t piece, int32_t thread) {
    const TokenSet set = memory.token_set(kernels, {0, tokens}, piece % sets);
    for_each_weight(args, parts[piece / sets], [&](size_t i, IndexRange rows, int64_t first_col) {
      const float* bias = args.biases.empty() ? nullptr : static_cast<const float*>(args.biases[i].data);
      float* sums = memory.sums(thread, 0);
      multiply_rows(kernels, args.weights[i], 0, rows, set, memory.panel(thread), sums);
      store_sums(sums, rows, set.size(), bias, args.add_to_out, block_of(args.out, set.first, first_col));
    });
  });
}

}  // namespace minfer::cpu
