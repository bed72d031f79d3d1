#include <algorithm>
#include <span>

#include "kernels/cpu/check.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/row_products.h"

namespace minfer::cpu {
namespace {

/// The (token, rank) slots of a step sorted by the expert they chose, stably: slots of expert e are
/// order[start[e]] ... order[start[e + 1] - 1].
struct ExpertGroups {
  const int32_t* start;  ///< [experts + 1]
  const int32_t* order;  ///< [slots]
  int64_t experts;

  static size_t bytes(int64_t slots, int64_t experts) {
    return static_cast<size_t>(slots + experts + 1) * sizeof(int32_t);
  }
  int64_t begin(int64_t expert) const { return start[expert]; }
  int64_t size(int64_t expert) const { return start[expert + 1] - start[expert]; }
};

/// Counting sort into `memory`, which has room for ExpertGroups::bytes().
ExpertGroups group_by_expert(std::span<const int32_t> expert_ids, int64_t experts, void* memory) {
  int32_t* start = static_cast<int32_t*>(memory);
  int32_t* order = start + experts + 1;
  std::fill_n(start, experts + 1, 0);
  for (const int32_t expert : expert_ids) {
    if (expert < 0 || expert >= experts) fail("moe: expert {} chosen of {}", expert, experts);
    ++start[expert];
  }
  for (int64_t e = 0; e < experts; ++e)
    start[e + 1] += start[e];
  // Each start is now its group's end; filling from the back moves it to the begin.
  for (int64_t slot = std::ssize(expert_ids) - 1; slot >= 0; --slot) {
    order[--start[expert_ids[slot]]] = static_cast<int32_t>(slot);
  }
  return {start, order, experts};
}

/// Packs the slots of all experts, on every thread of the region. memory.x() holds the slots' tokens in group
/// order.
void pack_groups(const ProductKernels& kernels, const ExpertGroups& groups, const ProductMemory& memory,
                 int32_t thread, int32_t team) {
  for (int64_t e = 0; e < groups.experts; ++e)
    memory.pack(kernels, groups.begin(e), groups.size(e), thread, team);
  barrier();
}

/// Calls body(expert, rows, first, tokens) for every expert that any token chose, every pass of `rows` and
/// every set of the expert's tokens; slot order[first + t] is token t of a set.
template <class Body>
void for_each_product(const ProductKernels& kernels, const ExpertGroups& groups, const ProductMemory& memory,
                      RowRange rows, const Body& body) {
  for (int64_t e = 0; e < groups.experts; ++e) {
    for_each_pass(rows, [&](RowRange range) {
      memory.for_each_token_set(
          kernels, groups.begin(e), groups.size(e),
          [&](int64_t first, const TokenSet& tokens) { body(e, range, first, tokens); });
    });
  }
}

}  // namespace

void moe_gate_up_swiglu(const MoeGateUpArgs& args, Isa isa, int32_t threads, Workspace& workspace) {
  const int64_t slots = args.x.rows * args.experts_used;
  const int64_t experts = args.gate.count;
  check_f32("moe_gate_up_swiglu x", args.x, args.x.rows, args.x.cols);
  check_weight("moe_gate_up_swiglu gate", args.gate, experts, args.gate.rows, args.x.cols);
  check_weight("moe_gate_up_swiglu up", args.up, experts, args.gate.rows, args.x.cols);
  check_f32("moe_gate_up_swiglu out", args.out, slots, args.gate.rows);
  if (slots == 0) return;
  const ProductKernels& kernels = product_kernels(isa);
  const ProductMemory memory(workspace, slots, args.x.cols, threads, ExpertGroups::bytes(slots, experts));
  const ExpertGroups groups =
      group_by_expert({args.expert_ids, static_cast<size_t>(slots)}, experts, memory.extra());
  for (int64_t i = 0; i < slots; ++i)
    memory.x()[i] = args.x.f32_row(groups.order[i] / args.experts_used);
  run_parallel(threads, [&](int32_t thread, int32_t team) {
    pack_groups(kernels, groups, memory, thread, team);
    float* gate = memory.sums(thread, 0);
    float* up = memory.sums(thread, 1);
    for_each_product(kernels, groups, memory, rows_of_thread(args.gate.rows, thread, team),
                     [&](int64_t expert, RowRange range, int64_t first, const TokenSet& tokens) {
                       multiply_rows(kernels, args.gate, expert, range, tokens, memory.panel(thread), gate);
                       multiply_rows(kernels, args.up, expert, range, tokens, memory.panel(thread), up);
                       for (int64_t t = 0; t < tokens.size(); ++t) {
                         float* out = args.out.f32_row(groups.order[first + t]) + range.begin;
                         kernels.swiglu(gate + t * kPassRows, up + t * kPassRows, range.size(), out);
                       }
                     });
  });
}

void moe_down(const MoeDownArgs& args, Isa isa, int32_t threads, Workspace& workspace) {
  const int64_t tokens = args.out.rows;
  const int64_t slots = tokens * args.experts_used;
  const int64_t experts = args.down.count;
  const int64_t rows = args.down.rows;
  check_f32("moe_down hidden", args.hidden, slots, args.hidden.cols);
  check_weight("moe_down down", args.down, experts, rows, args.hidden.cols);
  check_f32("moe_down out", args.out, tokens, rows);
  if (slots == 0) return;
  const ProductKernels& kernels = product_kernels(isa);
  const size_t product_bytes = static_cast<size_t>(slots * rows) * sizeof(float);
  const ProductMemory memory(workspace, slots, args.hidden.cols, threads,
                             product_bytes + ExpertGroups::bytes(slots, experts));
  float* products = static_cast<float*>(memory.extra());  // [slots, rows]
  const ExpertGroups groups =
      group_by_expert({args.expert_ids, static_cast<size_t>(slots)}, experts, products + slots * rows);
  for (int64_t i = 0; i < slots; ++i)
    memory.x()[i] = args.hidden.f32_row(groups.order[i]);
  run_parallel(threads, [&](int32_t thread, int32_t team) {
    pack_groups(kernels, groups, memory, thread, team);
    const RowRange own = rows_of_thread(rows, thread, team);
    float* sums = memory.sums(thread, 0);
    for_each_product(kernels, groups, memory, own,
                     [&](int64_t expert, RowRange range, int64_t first, const TokenSet& set) {
                       multiply_rows(kernels, args.down, expert, range, set, memory.panel(thread), sums);
                       for (int64_t t = 0; t < set.size(); ++t) {
                         std::copy_n(sums + t * kPassRows, range.size(),
                                     products + groups.order[first + t] * rows + range.begin);
                       }
                     });
    // A thread combines the rows that it multiplied, so no barrier is needed.
    for (int64_t t = 0; t < tokens; ++t) {
      const float* weights = args.expert_weights + t * args.experts_used;
      const float* product = products + t * args.experts_used * rows;
      for (int64_t r = own.begin; r < own.end; ++r) {
        float sum = 0.0f;
        for (int32_t j = 0; j < args.experts_used; ++j)
          sum += weights[j] * product[j * rows + r];
        args.out.f32_row(t)[r] += sum;
      }
    }
  });
}

}  // namespace minfer::cpu
