#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See DeltaConvArgs; heads of q and k of up to kMaxDeltaKeySize. Sequences whose slot is not one of the state's are padding: nothing of
/// theirs is read or written.
void delta_conv(Launch& launch, const ForwardBatch& batch, const DeltaConvArgs& args);

}  // namespace minfer::cuda
