#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

/// The launchers behind AttentionOps, one for each path (AttentionPath). The caller has checked the arguments.
namespace minfer::cuda {

void attention_general(Launch& launch, const ForwardBatch& batch, const AttentionArgs& args);

}  // namespace minfer::cuda
