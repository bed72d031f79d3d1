#pragma once

#include "kernels/tuning/plan_source.h"
#include "kernels/tuning/product_plan.h"

namespace minfer::test {

/// One plan for every product; automatic: none.
class OnePlan : public cuda::PlanSource {
 public:
  cuda::ProductPlan plan;
  const cuda::ProductPlan* find(const cuda::ProductShape& /*shape*/, int64_t /*tokens*/) const override {
    return plan.kernel == cuda::ProductKernel::automatic ? nullptr : &plan;
  }
  void check_device(const cuda::PlanDevice& /*device*/) const override {}
};

}  // namespace minfer::test
