#include "kernels/cuda/product/planned_product.h"

#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/product/stream/stream_product.h"

namespace minfer::cuda {

const ProductPlan* measured_plan(const PlanSource* plans, DType type, const PanelArgs& args) {
  if (plans == nullptr) return nullptr;
  const ProductOp op = args.up != nullptr ? ProductOp::gate_up
                       : args.add_to_out  ? ProductOp::linear_add
                                          : ProductOp::linear;
  const ProductPlan* plan = plans->find({type, op, args.rows, args.cols}, args.tokens);
  if (plan == nullptr) return nullptr;
  if (plan->kernel == ProductKernel::stream) return can_stream(args) ? plan : nullptr;
  if (plan->kernel == ProductKernel::tile_stream) return can_tile_stream(args) ? plan : nullptr;
  return plan;
}

bool launch_plan(Launch& launch, DType type, const PanelArgs& args, const ProductPlan& plan) {
  switch (plan.kernel) {
    case ProductKernel::panel:
      bf16_panel_product(launch, args);
      return true;
    case ProductKernel::tile_vector:
      tile_vector_product(launch, type, args);
      return true;
    case ProductKernel::tile_panel:
      tile_panel_product(launch, type, args);
      return true;
    case ProductKernel::tile_block:
      tile_block_product(launch, type, args);
      return true;
    case ProductKernel::stream:
      stream_product(launch, args, plan);
      return true;
    case ProductKernel::tile_stream:
      tile_stream_product(launch, type, args, plan);
      return true;
    case ProductKernel::automatic:
    case ProductKernel::cublaslt:
    case ProductKernel::dequantise:
      return false;
  }
  return false;
}

}  // namespace minfer::cuda
