#include "kernels/cpu/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/row_products.h"

namespace minfer::cpu {

void gate_up_swiglu(const GateUpArgs& args, Isa isa, int32_t threads, Workspace& workspace) {
  const int64_t tokens = args.x.rows;
  check_f32("gate_up_swiglu x", args.x, tokens, args.x.cols);
  check_weight("gate_up_swiglu gate", args.gate, 1, args.gate.rows, args.x.cols);
  check_weight("gate_up_swiglu up", args.up, 1, args.gate.rows, args.x.cols);
  check_f32("gate_up_swiglu out", args.out, tokens, args.gate.rows);
  if (tokens == 0) return;
  const ProductKernels& kernels = product_kernels(isa);
  const ProductMemory memory(workspace, tokens, args.x.cols, threads);
  for (int64_t t = 0; t < tokens; ++t)
    memory.x()[t] = args.x.f32_row(t);
  run_parallel(threads, [&](int32_t thread, int32_t team) {
    memory.pack(kernels, 0, tokens, thread, team);
    if (tokens > 1) barrier();
    float* gate = memory.sums(thread, 0);
    float* up = memory.sums(thread, 1);
    for_each_pass(rows_of_thread(args.gate.rows, thread, team), [&](RowRange range) {
      memory.for_each_token_set(kernels, 0, tokens, [&](int64_t first, const TokenSet& set) {
        multiply_rows(kernels, args.gate, 0, range, set, memory.panel(thread), gate);
        multiply_rows(kernels, args.up, 0, range, set, memory.panel(thread), up);
        for (int64_t t = 0; t < set.size(); ++t) {
          kernels.swiglu(gate + t * kPassRows, up + t * kPassRows, range.size(),
                         args.out.f32_row(first + t) + range.begin);
        }
      });
    });
  });
}

}  // namespace minfer::cpu
