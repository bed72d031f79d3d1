#include "kernels/bias.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/cpu/product/row_products.h"

namespace minfer::cpu {

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
  pack_tokens(kernels, tokens, memory, context);
  const int64_t sets = ProductMemory::num_sets(tokens);
  const int64_t products = 2 * args.gate.rows * args.x.cols * tokens;
  const RowParts parts(args.gate.rows, products, sets, context.pool->threads());
  context.pool->parallel_for(parts.count() * sets, [&](int64_t piece, int32_t thread) {
    const IndexRange rows = parts[piece / sets];
    const TokenSet set = memory.token_set(kernels, {0, tokens}, piece % sets);
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
  });
}

}  // namespace minfer::cpu
