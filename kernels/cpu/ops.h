#pragma once

#include <span>

#include "kernels/backend.h"
#include "kernels/cpu/lane_kernels.h"
#include "kernels/cpu/workspace.h"

// The ops of the CPU backend other than the weight products (linear.h). Activations are f32. Shapes are
// checked: a mismatch throws Error. A row's result has the same bits whatever else is in the batch, on any
// number of threads and on every instruction set.
namespace minfer::cpu {

/// What an op runs on. Non-owning; made by the backend for each call.
struct OpContext {
  int32_t threads = 1;
  Isa isa = Isa::portable;
  const LaneKernels* lanes = nullptr;  ///< of `isa`
  Workspace* workspace = nullptr;
};

/// See Backend::embed.
void embed(const int32_t* token_ids, const Weight& table, const Tensor& out, const OpContext& context);
/// See Backend::gather_rows.
void gather_rows(const Tensor& x, const int32_t* rows, const Tensor& out, const OpContext& context);
/// See Backend::rms_norm.
void rms_norm(const Tensor& x, const Weight& weight, float eps, const Tensor& out, const OpContext& context);
/// See RopeKvWriteArgs.
void rope_kv_write(const ForwardBatch& batch, const RopeKvWriteArgs& args, const OpContext& context);
/// See AttentionArgs and attention_lanes.h.
void attention(const ForwardBatch& batch, const AttentionArgs& args, const OpContext& context);
/// See MoeRouteArgs.
void moe_route(const MoeRouteArgs& args, const OpContext& context);
/// See Backend::sample and sampling.h.
void sample(const Tensor& logits, std::span<const SamplingRow> rows, std::span<SampledToken> out,
            const OpContext& context);

/// Below this many elements an op stays on the calling thread: waking the others takes longer than the work.
inline constexpr int64_t kMinParallelElements = 16384;

/// Threads for an op over `elements` elements.
inline int32_t threads_for(int64_t elements, const OpContext& context) {
  return elements < kMinParallelElements ? 1 : context.threads;
}

}  // namespace minfer::cpu
