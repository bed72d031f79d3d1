#pragma once

#include "kernels/tuning/product_plan.h"

namespace minfer::cuda {

/// What was measured, for LinearOps to follow. Shared by the ranks of a process: const calls may come from several threads.
class PlanSource {
 public:
  virtual ~PlanSource() = default;
  /// How to compute a product of `tokens` tokens; null: as LinearOps does by itself. What it points to lives as long as this.
  virtual const ProductPlan* find(const ProductShape& shape, int64_t tokens) const = 0;
  /// Throws Error if the plans are not for this device.
  virtual void check_device(const PlanDevice& device) const = 0;
};

}  // namespace minfer::cuda
