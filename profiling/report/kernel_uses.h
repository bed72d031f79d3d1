#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiling/summary/aggregate.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// A group of adjacent layers. A model has at most four; the ops before and behind the layers are one more group.
struct LayerGroup {
  int32_t first = -1;  ///< -1: outside the layers
  int32_t last = -1;
  auto operator<=>(const LayerGroup&) const = default;
  std::string text() const;  ///< "layers 0 to 7"
};
/// `num_layers`: of the model. Layers beyond it belong to the last group.
LayerGroup layer_group(int32_t layer, int32_t num_layers);

/// Calls of an op in a group of layers, from steps with detail by layer.
struct LayerSum {
  int64_t calls = 0;
  double us = 0.0;
};
/// Kernels of one name that an op launched in traced steps (tier 1).
struct TracedKernel {
  int64_t calls = 0;
  double own_us = 0.0;  ///< each instant counted once, see KernelLine
};

/// The sums for views, beside the sums of a report. Grows with the number of ops and kernels, not of steps. One thread at a time.
class ViewSums {
 public:
  struct OpKey {
    StepPhase phase = StepPhase::decode;  ///< of the op's tokens
    LayerGroup group;
    std::string op;
    auto operator<=>(const OpKey&) const = default;
  };
  using Layers = std::map<OpKey, LayerSum>;
  using Kernels = std::map<std::pair<OpKey, std::string>, TracedKernel>;  ///< by op and the kernel's name

  explicit ViewSums(const std::vector<OpInfo>& ops = {});
  void add(const StepSummary& step);
  void add(const KernelLine& kernel);

  const Layers& layers() const { return layers_; }
  const Kernels& kernels() const { return kernels_; }

 private:
  int32_t num_layers_ = 0;
  Layers layers_;
  Kernels kernels_;
};

/// A kernel that an op launches.
struct KernelUse {
  ViewSums::OpKey op;  ///< `group` as in the requested view
  std::string kernel;
  /// The kernel's part of the op's time in all steps: all of it if the op launches no other kernel; else by the kernels' own times in
  /// traced steps. Negative: not known.
  double us = -1.0;
  int64_t calls = -1;     ///< in traced steps; -1: none was traced
  double call_us = -1.0;  ///< own time of a call in traced steps; negative: none was traced
};

/// The kernels of all ops. `by_layer`: separately for each group of layers with known times.
std::vector<KernelUse> kernel_uses(const std::vector<PhaseOp>& ops, const std::vector<KernelLaunch>& launches,
                                   const ViewSums& sums, bool by_layer);

}  // namespace minfer
