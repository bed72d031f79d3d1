#include "kernels/cpu/product/linear.h"

#include <algorithm>

#include "kernels/bias.h"
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

void check(const HeadLinearArgs& args) {
  const Weight& weight = args.weight;
  check_weight("head_linear weight", weight, weight.count, weight.rows, weight.cols);
  check_f32("head_linear x", args.x, args.x.rows, args.x.cols);
  check_f32("head_linear out", args.out, args.x.rows, args.out.cols);
  const auto fits = [&](int64_t cols, int64_t size) {
    return weight.count > 0 && cols % weight.count == 0 && cols / weight.count >= size;
  };
  if (!fits(args.x.cols, weight.cols) || !fits(args.out.cols, weight.rows)) {
    fail("head_linear: {} heads x [{}, {}] from {} to {} columns, expected as many heads in them",
         weight.count, weight.rows, weight.cols, args.x.cols, args.out.cols);
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
  const auto multiply = [&](int64_t, IndexRange cols, const TokenSet& set, int32_t thread) {
    for_each_weight(args, cols, [&](size_t i, IndexRange rows, int64_t first_col) {
      const float* bias = args.biases.empty() ? nullptr : static_cast<const float*>(args.biases[i].data);
      float* sums = memory.sums(thread, 0);
      multiply_rows(kernels, args.weights[i], 0, rows, set, memory.panel(thread), sums);
      store_sums(sums, rows, set.size(), bias, args.add_to_out, block_of(args.out, set.first, first_col));
    });
  };
  for_each_piece(kernels, memory, 1, tokens, args.out.cols, args.out.cols * args.x.cols * tokens, context,
                 multiply);
}

// The tokens of a head follow each other in memory.x(), head after head.
void head_linear(const HeadLinearArgs& args, const OpContext& context) {
  check(args);
  const int64_t tokens = args.x.rows, heads = args.weight.count, rows = args.weight.rows;
  if (tokens == 0) return;
  const ProductKernels& kernels = product_kernels(context.isa);
  const ProductMemory memory(context, heads * tokens, args.weight.cols);
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t t = 0; t < tokens; ++t)
      memory.x()[h * tokens + t] = args.x.f32_row(t) + h * (args.x.cols / heads);
  }
  const auto multiply = [&](int64_t h, IndexRange range, const TokenSet& set, int32_t thread) {
    float* sums = memory.sums(thread, 0);
    multiply_rows(kernels, args.weight, h, range, set, memory.panel(thread), sums);
    for (int64_t t = 0; t < set.size(); ++t) {
      std::copy_n(sums + t * kPassRows, range.size(),
                  args.out.f32_row(set.first - h * tokens + t) + h * (args.out.cols / heads) + range.begin);
    }
  };
  for_each_piece(kernels, memory, heads, tokens, rows, heads * rows * args.weight.cols * tokens, context,
                 multiply);
}

void gate_up_swiglu(const GateUpArgs& args, const OpContext& context) {
  const int64_t tokens = args.x.rows;
  check_f32("gate_up_swiglu x", args.x, tokens, args.x.cols);
  check_weight("gate_up_swiglu gate", args.gate, 1, args.gate.rows, args.x.cols);
  check_weight("gate_up_swiglu up", args.up, 1, args.gate.rows, args.x.cols);
  check_f32("gate_up_swiglu out", args.out, tokens, args.gate.rows);
  check_no_norm("gate_up_swiglu", args.norm);
  check_bias("gate_up_swiglu gate bias", args.gate_bias, 1, args.gate.rows);
  check_bias("gate_up_swiglu up bias", args.up_bias, 1, args.gate.rows);
  if (tokens == 0) return;
  const ProductKernels& kernels = product_kernels(context.isa);
  const ProductMemory memory(context, tokens, args.x.cols);
  for (int64_t t = 0; t < tokens; ++t)
    memory.x()[t] = args.x.f32_row(t);
  const auto multiply = [&](int64_t, IndexRange rows, const TokenSet& set, int32_t thread) {
    float* gate = memory.sums(thread, 0);
    float* up = memory.sums(thread, 1);
    multiply_rows(kernels, args.gate, 0, rows, set, memory.panel(thread), gate);
    multiply_rows(kernels, args.up, 0, rows, set, memory.panel(thread), up);
    for (int64_t t = 0; t < set.size(); ++t) {
      kernels.activate({.activation = args.activation,
                        .gate = gate + t * kPassRows,
                        .up = up + t * kPassRows,
                        .gate_bias = bias_at(args.gate_bias, 0, rows.begin),
                        .up_bias = bias_at(args.up_bias, 0, rows.begin),
                        .count = rows.size()},
                       args.out.f32_row(set.first + t) + rows.begin);
    }
  };
  for_each_piece(kernels, memory, 1, tokens, args.gate.rows, 2 * args.gate.rows * args.x.cols * tokens,
                 context, multiply);
}

}  // namespace minfer::cpu
