#pragma once

#include "kernels/cuda/product/panel_product.h"
#include "kernels/tuning/plan_source.h"

/// Products by plans that were measured (kernels/tuning) instead of LinearOps' own rules.
namespace minfer::cuda {

/// The plan that `plans` (may be null) has for a product with bf16 x; null: there is none, or its kernel cannot take memory that is
/// aligned like this.
const ProductPlan* measured_plan(const PlanSource* plans, DType type, const PanelArgs& args);

/// Launches the plan's kernel. False, and nothing done, for those that need what LinearOps has: cublaslt and dequantise.
bool launch_plan(Launch& launch, DType type, const PanelArgs& args, const ProductPlan& plan);

}  // namespace minfer::cuda
