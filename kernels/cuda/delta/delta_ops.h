#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

/// The ops with states: gated delta nets, Mamba-2, short convolutions, hidden states of last positions. Also the gates of heads, which
/// attention has too.
namespace minfer::cuda {

/// See DeltaConvArgs; heads of q and k of up to kMaxDeltaKeySize. A sequence whose slot is not one of the
/// state's is padding: nothing of it is read or written.
void delta_conv(Launch& launch, const ForwardBatch& batch, const DeltaConvArgs& args);
/// See DeltaRuleArgs; heads and padding as in delta_conv(), but the rows of `out` of padding become zeros.
void delta_rule(Launch& launch, const ForwardBatch& batch, const DeltaRuleArgs& args);
/// See HeadGateArgs. x f32 or bf16; out f32, bf16 or, with heads of a multiple of 128 and aligned rows, fp8. x
/// and out may be the same if they have the same type.
void head_gate(Launch& launch, const HeadGateArgs& args);
/// See ShortConvArgs; out f32 or bf16. Padding as in delta_rule().
void short_conv(Launch& launch, const ForwardBatch& batch, const ShortConvArgs& args);
/// See MambaScanArgs; states of up to kMaxDeltaKeySize rows. Padding as in delta_rule().
void mamba_scan(Launch& launch, const ForwardBatch& batch, const MambaScanArgs& args);

/// See HiddenRowsArgs.
void hidden_rows(Launch& launch, const ForwardBatch& batch, const HiddenRowsArgs& args);

}  // namespace minfer::cuda
