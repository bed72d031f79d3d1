#include "profiling/report/kernel_uses.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace minfer {
namespace {

constexpr int32_t kGroups = 4;

/// Names of what the op was recorded to launch.
std::set<std::string> launched_kernels(const OpAggregate& op, const std::vector<KernelLaunch>& launches) {
  std::set<std::string> names;
  for (const auto& [launch, steps] : op.launches)
    names.insert(launches.at(static_cast<size_t>(launch)).kernel);
  return names;
}

/// Calls and time of an op's kernels in traced steps, by name.
std::map<std::string, TracedKernel> traced_kernels(const ViewSums& sums, const ViewSums::OpKey& op,
                                                   bool by_layer) {
  std::map<std::string, TracedKernel> traced;
  for (const auto& [key, kernel] : sums.kernels()) {
    const ViewSums::OpKey& of = key.first;
    if (of.phase != op.phase || of.op != op.op || (by_layer && of.group != op.group)) continue;
    TracedKernel& sum = traced[key.second];
    sum.calls += kernel.calls;
    sum.own_us += kernel.own_us;
  }
  return traced;
}

/// Appends the kernels of an op, whose time is `op_us`.
void append_uses(std::vector<KernelUse>& uses, const ViewSums::OpKey& op, double op_us,
                 const std::set<std::string>& launched, const std::map<std::string, TracedKernel>& traced) {
  double traced_us = 0.0;
  for (const auto& [kernel, sum] : traced)
    traced_us += sum.own_us;
  for (const auto& [kernel, sum] : traced)
    uses.push_back({op, kernel, traced_us > 0.0 ? op_us * sum.own_us / traced_us : -1.0, sum.calls,
                    sum.own_us / static_cast<double>(sum.calls)});
  const bool is_only = launched.size() == 1 && traced.empty();
  for (const std::string& kernel : launched) {
    if (!traced.contains(kernel)) uses.push_back({op, kernel, is_only ? op_us : -1.0});
  }
}

}  // namespace

std::string LayerGroup::text() const {
  if (first < 0) return "outside the layers";
  return first == last ? fmt::format("layer {}", first) : fmt::format("layers {} to {}", first, last);
}

LayerGroup layer_group(int32_t layer, int32_t num_layers) {
  if (layer < 0 || num_layers <= 0) return {};
  const int32_t width = (num_layers + kGroups - 1) / kGroups;
  const int32_t first = std::min(layer, num_layers - 1) / width * width;
  return {first, std::min(first + width, num_layers) - 1};
}

ViewSums::ViewSums(const std::vector<OpInfo>& ops) {
  for (const OpInfo& op : ops)
    num_layers_ = std::max(num_layers_, op.layer + 1);
}

void ViewSums::add(const StepSummary& step) {
  for (const LayerOp& op : step.layers) {
    LayerSum& sum = layers_[{op.phase, layer_group(op.layer, num_layers_), op.op}];
    ++sum.calls;
    sum.us += op.us;
  }
}

void ViewSums::add(const KernelLine& kernel) {
  if (!kernel.phase) return;
  const OpKey op{*kernel.phase, layer_group(kernel.layer, num_layers_), kernel.op};
  const bool is_kernel = kernel.kind == ActivityKind::kernel;
  TracedKernel& sum = kernels_[{op, is_kernel ? kernel.kernel : std::string(name(kernel.kind))}];
  ++sum.calls;
  sum.own_us += kernel.own_us;
}

std::vector<KernelUse> kernel_uses(const std::vector<PhaseOp>& ops, const std::vector<KernelLaunch>& launches,
                                   const ViewSums& sums, bool by_layer) {
  std::vector<KernelUse> uses;
  for (const PhaseOp& op : ops) {
    const std::set<std::string> launched = launched_kernels(op.sum, launches);
    if (!by_layer) {
      const ViewSums::OpKey key{op.phase, {}, op.sum.op};
      append_uses(uses, key, op.sum.us, launched, traced_kernels(sums, key, false));
      continue;
    }
    for (const auto& [key, layers] : sums.layers()) {
      if (key.phase == op.phase && key.op == op.sum.op)
        append_uses(uses, key, layers.us, launched, traced_kernels(sums, key, true));
    }
  }
  return uses;
}

}  // namespace minfer
