#pragma once

#include "kernels/activation.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

/// The ops of this folder, one source file each.
namespace minfer::cuda {

/// See EmbedArgs: table in any device weight layout, out f32 or bf16.
void embed(Launch& launch, const EmbedArgs& args);
/// out[i] = x[rows[i]]; both f32 or both bf16.
void gather_rows(Launch& launch, const Tensor& x, const int32_t* rows, const Tensor& out);

/// See SpreadColumnsArgs.
void spread_columns(Launch& launch, const SpreadColumnsArgs& args);

/// See NormArgs. x f32 or bf16, out f32 or bf16 (fp8 for a plain RMS norm: rms_norm()), weight and bias f32.
/// out may be x unless it is added to.
void norm(Launch& launch, const NormArgs& args);
/// out = x / sqrt(mean(x^2) + eps) * weight, per row. x f32 or bf16, out f32 or bf16, weight [1, cols] f32;
/// out may be x.
void rms_norm(Launch& launch, const Tensor& x, const Weight& weight, float eps, const Tensor& out);

/// See RopeKvWriteArgs. q_out bf16 or f32; KV cache f32, f16, bf16 or fp8 (e4m3). A token with a negative slot
/// is padding and is not written to the cache.
void rope_kv_write(Launch& launch, const ForwardBatch& batch, const RopeKvWriteArgs& args);
/// See LatentKvWriteArgs. Types and negative slots as in rope_kv_write().
void latent_kv_write(Launch& launch, const ForwardBatch& batch, const LatentKvWriteArgs& args);

/// See ActivateArgs: x and out both f32 or both bf16.
void activate(Launch& launch, const ActivateArgs& args);
/// See MixStreamsArgs.
void mix_streams(Launch& launch, const MixStreamsArgs& args);
/// Biases and activation for the sums of gate and up.
struct Gating {
  GateActivation activation = GateActivation::silu;
  const float* gate_bias = nullptr;  ///< [F] or null
  const float* up_bias = nullptr;    ///< [F] or null
};
/// out = activation(gate + gate_bias, up + up_bias). gate_up: [tokens, 2 F], gate in the first F columns; out
/// [tokens, F]. Each is bf16 or f32.
void swiglu(Launch& launch, const Tensor& gate_up, const Tensor& out, const Gating& gating = {});

/// out[t, n] += bias[n]; bias [out.cols] f32 in device memory; out [tokens, n] bf16 or f32.
void add_bias(Launch& launch, const float* bias, const Tensor& out);
/// out = x as f16, rows without gaps. The conversion is exact except for magnitudes below 2^-14, which lose bits,
/// and above 65504, which become 65504. x bf16 [tokens, cols]; cols a multiple of 8, rows of x 16-byte aligned.
void convert_to_f16(Launch& launch, const Tensor& x, void* out);

}  // namespace minfer::cuda
