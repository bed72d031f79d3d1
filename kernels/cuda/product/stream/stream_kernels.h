#pragma once

#include "kernels/cuda/product/panel_product.h"
#include "kernels/cuda/product/stream/stream_plan.h"

/// The kernels behind stream_product(), one file of instantiations each.
namespace minfer::cuda {

/// Plans with one warpgroup, and with two; no gate and up.
void stream_64_rows(Launch& launch, const PanelArgs& args, const StreamPlan& plan);
void stream_128_rows(Launch& launch, const PanelArgs& args, const StreamPlan& plan);
/// Two warpgroups.
void stream_gate_up(Launch& launch, const PanelArgs& args, const StreamPlan& plan);

}  // namespace minfer::cuda
