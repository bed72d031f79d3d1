#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See DeltaRuleArgs; heads of q and k of up to kMaxDeltaKeySize. Sequences whose slot is not one of the state's are padding: their rows
/// of out become zeros.
void delta_rule(Launch& launch, const ForwardBatch& batch, const DeltaRuleArgs& args);

}  // namespace minfer::cuda
