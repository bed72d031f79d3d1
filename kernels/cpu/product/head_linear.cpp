#include <algorithm>

#include "kernels/base/error.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/cpu/product/row_products.h"

namespace minfer::cpu {
namespace {

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

}  // namespace

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
  const int64_t pack_parts = memory.pack_parts(context);
  context.pool->parallel_for(pack_parts, [&](int64_t part, int32_t) {
    for (int64_t h = 0; h < heads; ++h)
      memory.pack(kernels, {h * tokens, (h + 1) * tokens}, part, pack_parts);
  });
  const int64_t sets = ProductMemory::num_sets(tokens);
  const int64_t products = heads * rows * args.weight.cols * tokens;
  const RowParts parts(rows, products, heads * sets, context.pool->threads());
  context.pool->parallel_for(heads * parts.count() * sets, [&](int64_t piece, int32_t thread) {
    const int64_t h = piece / (parts.count() * sets);
    const IndexRange range = parts[piece / sets % parts.count()];
    const TokenSet set = memory.token_set(kernels, {h * tokens, (h + 1) * tokens}, piece % sets);
    float* sums = memory.sums(thread, 0);
    multiply_rows(kernels, args.weight, h, range, set, memory.panel(thread), sums);
    for (int64_t t = 0; t < set.size(); ++t) {
      std::copy_n(sums + t * kPassRows, range.size(),
                  args.out.f32_row(set.first - h * tokens + t) + h * (args.out.cols / heads) + range.begin);
    }
  });
}

}  // namespace minfer::cpu
