#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/context/op_context.h"

// The ops of the CPU backend other than the weight products (linear.h), by their arguments (kernels/op_args.h). Activations are
// f32. Shapes are checked: a mismatch throws Error. A row's result has the same bits whatever else is in the batch, on any number
// of threads and on every instruction set.
namespace minfer::cpu {

void embed(const EmbedArgs& args, const OpContext& context);
void spread_columns(const SpreadColumnsArgs& args, const OpContext& context);
/// See Backend::gather_rows.
void gather_rows(const Tensor& x, const int32_t* rows, const Tensor& out, const OpContext& context);
void norm(const NormArgs& args, const OpContext& context);
/// One row; `out` may be x.
void layer_norm_row(const float* x, const float* weight, float eps, int64_t size, float* out);
void activate(const ActivateArgs& args, const OpContext& context);
void rope_kv_write(const ForwardBatch& batch, const RopeKvWriteArgs& args, const OpContext& context);
/// Overwrites kv.
void latent_kv_write(const ForwardBatch& batch, const LatentKvWriteArgs& args, const OpContext& context);
void attention(const ForwardBatch& batch, const AttentionArgs& args, const OpContext& context);
void delta_conv(const ForwardBatch& batch, const DeltaConvArgs& args, const OpContext& context);
void delta_rule(const ForwardBatch& batch, const DeltaRuleArgs& args, const OpContext& context);
void head_gate(const HeadGateArgs& args, const OpContext& context);
void short_conv(const ForwardBatch& batch, const ShortConvArgs& args, const OpContext& context);
void hidden_rows(const ForwardBatch& batch, const HiddenRowsArgs& args, const OpContext& context);
void mamba_scan(const ForwardBatch& batch, const MambaScanArgs& args, const OpContext& context);
void choose_keys(const ForwardBatch& batch, const ChooseKeysArgs& args, const OpContext& context);
void mix_streams(const MixStreamsArgs& args, const OpContext& context);
void moe_route(const MoeRouteArgs& args, const OpContext& context);
/// Draws one token for each row of logits as SamplingRow says: rows[i] belongs to row i of `logits`, and its
/// result goes to out[i].
void sample(const Tensor& logits, std::span<const SamplingRow> rows, std::span<SampledToken> out,
            const OpContext& context);

}  // namespace minfer::cpu
