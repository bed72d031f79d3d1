#include <algorithm>
#include <span>

#include "kernels/bias.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/cpu/product/row_products.h"

namespace minfer::cpu {
namespace {

/// The (token, rank) routes of a step sorted by the expert they chose, stably: routes of expert e are
/// order[start[e]] ... order[start[e + 1] - 1].
struct ExpertGroups {
  const int32_t* start;  ///< [experts + 1]
  const int32_t* order;  ///< [routes]
  int64_t experts;

  static size_t bytes(int64_t routes, int64_t experts) {
    return static_cast<size_t>(routes + experts + 1) * sizeof(int32_t);
  }
  IndexRange routes(int64_t expert) const { return {start[expert], start[expert + 1]}; }
  /// The number of experts that any route chose.
  int32_t num_chosen() const {
    int32_t chosen = 0;
    for (int64_t e = 0; e < experts; ++e)
      chosen += start[e + 1] > start[e] ? 1 : 0;
    return chosen;
  }
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
  // Each start is now its group's end; filling from the back moves it to the group's begin.
  for (int64_t route = std::ssize(expert_ids) - 1; route >= 0; --route) {
    order[--start[expert_ids[route]]] = static_cast<int32_t>(route);
  }
  return {start, order, experts};
}

/// Packs the routes of all experts. memory.x() holds the routes' tokens in group order.
void pack_groups(const ProductKernels& kernels, const ExpertGroups& groups, const ProductMemory& memory,
                 const OpContext& context) {
  const int64_t parts = memory.pack_parts(context);
  context.pool->parallel_for(parts, [&](int64_t part, int32_t) {
    for (int64_t e = 0; e < groups.experts; ++e)
      memory.pack(kernels, groups.routes(e), part, parts);
  });
}

/// Calls body(expert, set) for every expert that any token chose and every set of its tokens. Token
/// t of a set is route order[set.first + t].
template <class Body>
void for_each_set(const ProductKernels& kernels, const ExpertGroups& groups, const ProductMemory& memory,
                  const Body& body) {
  for (int64_t e = 0; e < groups.experts; ++e) {
    const IndexRange routes = groups.routes(e);
    for (int64_t i = 0; i < ProductMemory::num_sets(routes.size()); ++i)
      body(e, memory.token_set(kernels, routes, i));
  }
}

}  // namespace

int32_t moe_gate_up_swiglu(const MoeGateUpArgs& args, const OpContext& context) {
  const int64_t routes = args.x.rows * args.experts_used;
  const int64_t experts = args.gate.count;
  check_f32("moe_gate_up_swiglu x", args.x, args.x.rows, args.x.cols);
  check_weight("moe_gate_up_swiglu gate", args.gate, experts, args.gate.rows, args.x.cols);
  check_weight("moe_gate_up_swiglu up", args.up, experts, args.gate.rows, args.x.cols);
  check_f32("moe_gate_up_swiglu out", args.out, routes, args.gate.rows);
  check_bias("moe_gate_up_swiglu gate bias", args.gate_bias, experts, args.gate.rows);
  check_bias("moe_gate_up_swiglu up bias", args.up_bias, experts, args.gate.rows);
  if (routes == 0) return 0;
  const ProductKernels& kernels = product_kernels(context.isa);
  const ProductMemory memory(context, routes, args.x.cols, ExpertGroups::bytes(routes, experts));
  const ExpertGroups groups =
      group_by_expert({args.expert_ids.data, static_cast<size_t>(routes)}, experts, memory.extra());
  for (int64_t i = 0; i < routes; ++i)
    memory.x()[i] = args.x.f32_row(groups.order[i] / args.experts_used);
  pack_groups(kernels, groups, memory, context);
  const int64_t products = 2 * args.gate.rows * args.x.cols * routes;
  const RowParts parts(args.gate.rows, products, 1, context.pool->threads());
  context.pool->parallel_for(parts.count(), [&](int64_t part, int32_t thread) {
    const IndexRange rows = parts[part];
    float* gate = memory.sums(thread, 0);
    float* up = memory.sums(thread, 1);
    for_each_set(kernels, groups, memory, [&](int64_t expert, const TokenSet& set) {
      multiply_rows(kernels, args.up, expert, rows, set, memory.panel(thread), up);
      if (args.gate.data == args.up.data) {  // experts without a gate
        std::copy_n(up, set.size() * kPassRows, gate);
      } else {
        multiply_rows(kernels, args.gate, expert, rows, set, memory.panel(thread), gate);
      }
      for (int64_t t = 0; t < set.size(); ++t) {
        const int32_t route = groups.order[set.first + t];
        for (int64_t r = 0; args.input_weights != nullptr && r < rows.size(); ++r) {
          gate[t * kPassRows + r] *= args.input_weights[route];
          up[t * kPassRows + r] *= args.input_weights[route];
        }
        kernels.activate({.activation = args.activation,
                          .gate = gate + t * kPassRows,
                          .up = up + t * kPassRows,
                          .gate_bias = bias_at(args.gate_bias, expert, rows.begin),
                          .up_bias = bias_at(args.up_bias, expert, rows.begin),
                          .count = rows.size()},
                         args.out.f32_row(route) + rows.begin);
      }
    });
  });
  return groups.num_chosen();
}

int32_t moe_down(const MoeDownArgs& args, const OpContext& context) {
  const int64_t tokens = args.out.rows;
  const int64_t routes = tokens * args.experts_used;
  const int64_t experts = args.down.count;
  const int64_t rows = args.down.rows;
  check_f32("moe_down hidden", args.hidden, routes, args.hidden.cols);
  check_weight("moe_down down", args.down, experts, rows, args.hidden.cols);
  check_f32("moe_down out", args.out, tokens, rows);
  check_bias("moe_down bias", args.bias, experts, rows);
  if (routes == 0) return 0;
  const ProductKernels& kernels = product_kernels(context.isa);
  const size_t product_bytes = static_cast<size_t>(routes * rows) * sizeof(float);
  const ProductMemory memory(context, routes, args.hidden.cols,
                             product_bytes + ExpertGroups::bytes(routes, experts));
  float* products = static_cast<float*>(memory.extra());  // [routes, rows]
  const ExpertGroups groups =
      group_by_expert({args.expert_ids.data, static_cast<size_t>(routes)}, experts, products + routes * rows);
  for (int64_t i = 0; i < routes; ++i)
    memory.x()[i] = args.hidden.f32_row(groups.order[i]);
  pack_groups(kernels, groups, memory, context);
  const RowParts parts(rows, rows * args.hidden.cols * routes, 1, context.pool->threads());
  context.pool->parallel_for(parts.count(), [&](int64_t part, int32_t thread) {
    const IndexRange own = parts[part];
    float* sums = memory.sums(thread, 0);
    for_each_set(kernels, groups, memory, [&](int64_t expert, const TokenSet& set) {
      multiply_rows(kernels, args.down, expert, own, set, memory.panel(thread), sums);
      for (int64_t t = 0; t < set.size(); ++t) {
        float* product = products + groups.order[set.first + t] * rows + own.begin;
        std::copy_n(sums + t * kPassRows, own.size(), product);
        const float* bias = bias_at(args.bias, expert, own.begin);
        for (int64_t r = 0; bias != nullptr && r < own.size(); ++r)
          product[r] += bias[r];
      }
    });
    // The thread that multiplied rows also combines them, so no thread waits for another.
    for (int64_t t = 0; t < tokens; ++t) {
      const float* weights = args.expert_weights + t * args.experts_used;
      const float* product = products + t * args.experts_used * rows;
      for (int64_t r = own.begin; r < own.end; ++r) {
        float sum = 0.0f;
        for (int32_t j = 0; j < args.experts_used; ++j)
          sum += weights[j] * product[j * rows + r];
        float& out = args.out.f32_row(t)[r];
        out = args.add_to_out ? out + sum : sum;
      }
    }
  });
  return groups.num_chosen();
}

}  // namespace minfer::cpu
