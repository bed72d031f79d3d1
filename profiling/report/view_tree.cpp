#include "profiling/report/view_tree.h"

#include <algorithm>
#include <array>
#include <map>

#include "profiling/report/kernel_uses.h"

namespace minfer {
namespace {

constexpr std::string_view kPhaseLevel = "phase", kLayersLevel = "layers", kOpLevel = "op",
                           kKernelLevel = "kernel", kCallerLevel = "caller";

void sort_nodes(std::vector<ViewNode>& nodes, const ReportOptions& options) {
  sort_rows(nodes, options.sort, options.top, &ViewNode::name, [](const ViewNode& node) {
    return std::array{node.us,      static_cast<double>(node.calls),
                      node.call_us,
                      node.call_us,  // a view has no longest call
                      node.gbps(),  -node.roofline()};
  });
  for (ViewNode& node : nodes)
    sort_nodes(node.children, options);
}

bool is_wanted(const std::string& op, const ReportOptions& options) {
  return options.op.empty() || options.op == op;
}

ViewNode kernel_node(const KernelUse& use, std::string name, std::string_view level) {
  return {std::move(name), level, use.us, use.calls, use.call_us};
}

ViewNode& child(std::vector<ViewNode>& nodes, const std::string& name, std::string_view level) {
  const auto found = std::ranges::find(nodes, name, &ViewNode::name);
  if (found != nodes.end()) return *found;
  return nodes.emplace_back(ViewNode{name, level, 0.0});
}

}  // namespace

std::vector<ViewNode> top_down(const ReportData& data, const ReportOptions& options) {
  const bool by_layer = !data.views.layers().empty();
  std::map<ViewSums::OpKey, ViewNode> ops;
  for (const PhaseOp& op : data.sum.phase_ops) {
    const OpAggregate& sum = op.sum;
    if (!by_layer && is_wanted(sum.op, options))
      ops[{op.phase, {}, sum.op}] = {sum.op,        kOpLevel,  sum.us,      sum.calls,
                                     sum.mean_us(), sum.bytes, sum.floor_us};
  }
  for (const auto& [key, sum] : data.views.layers()) {
    if (is_wanted(key.op, options))
      ops[key] = {key.op, kOpLevel, sum.us, sum.calls, sum.us / static_cast<double>(sum.calls)};
  }
  for (const KernelUse& use : kernel_uses(data.sum.phase_ops, data.launches, data.views, by_layer)) {
    if (const auto op = ops.find(use.op); op != ops.end())
      op->second.children.push_back(kernel_node(use, use.kernel, kKernelLevel));
  }
  std::vector<ViewNode> phases;
  for (auto& [key, op] : ops) {
    ViewNode& phase = child(phases, std::string(name(key.phase)), kPhaseLevel);
    phase.us += op.us;
    if (!by_layer) {
      phase.children.push_back(std::move(op));
      continue;
    }
    ViewNode& layers = child(phase.children, key.group.text(), kLayersLevel);
    layers.us += op.us;
    layers.children.push_back(std::move(op));
  }
  sort_nodes(phases, options);
  return phases;
}

std::vector<ViewNode> bottom_up(const ReportData& data, const ReportOptions& options) {
  std::vector<ViewNode> kernels;
  for (const KernelUse& use : kernel_uses(data.sum.phase_ops, data.launches, data.views, false)) {
    if (!is_wanted(use.op.op, options)) continue;
    ViewNode& kernel = child(kernels, use.kernel, kKernelLevel);
    // The sum over those that call it, where each is known.
    kernel.us = use.us < 0.0 || kernel.us < 0.0 ? -1.0 : kernel.us + use.us;
    if (use.calls > 0) {
      const int64_t before = std::max<int64_t>(kernel.calls, 0);
      kernel.calls = before + use.calls;
      kernel.call_us =
          (kernel.call_us * static_cast<double>(before) + use.call_us * static_cast<double>(use.calls)) /
          static_cast<double>(kernel.calls);
    }
    kernel.children.push_back(
        kernel_node(use, use.op.op + " (" + std::string(name(use.op.phase)) + ")", kCallerLevel));
  }
  sort_nodes(kernels, options);
  return kernels;
}

}  // namespace minfer
