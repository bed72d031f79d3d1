#pragma once

#include "kernels/backend.h"
#include "kernels/cpu/lane_kernels.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/workspace.h"

namespace minfer::cpu {

/// The reference backend: f32 activations, weights in the type and the memory that the host gave.
/// Synchronous: an op has ended when its call returns. Results are bitwise invariant (design.md section 4).
/// Uses OpenMP threads inside an op; the instruction set is chosen when the backend is made.
class CpuBackend final : public Backend {
 public:
  /// `threads` 0: as many as the machine has cores. Throws Error if it is negative.
  explicit CpuBackend(int32_t threads);

  BackendInfo info() const override;
  Buffer allocate(size_t bytes, std::string_view what) override;
  Weight load(const HostTensor& tensor) override;
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_to_host(void* host, const void* device, size_t bytes) override;
  void synchronize() override {}
  void begin_step(StepStamps* stamps) override { stamps_ = stamps; }
  void end_step() override;

  void embed(OpId op, const int32_t* token_ids, const Weight& table, const Tensor& out) override;
  void rms_norm(OpId op, const Tensor& x, const Weight& weight, float eps, const Tensor& out) override;
  void linear(OpId op, const LinearArgs& args) override;
  void gate_up_swiglu(OpId op, const GateUpArgs& args) override;
  void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) override;
  void attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) override;
  void moe_route(OpId op, const MoeRouteArgs& args) override;
  void moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) override;
  void moe_down(OpId op, const MoeDownArgs& args) override;
  void gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) override;
  void sample(OpId op, const Tensor& logits, std::span<const SamplingRow> rows,
              std::span<SampledToken> out) override;

 private:
  void stamp(OpId op);
  OpContext context() { return {threads_, isa_, lanes_, &workspace_}; }

  int32_t threads_;
  Isa isa_;
  const LaneKernels* lanes_;
  Workspace workspace_;
  StepStamps* stamps_ = nullptr;  ///< of the step in progress
};

}  // namespace minfer::cpu
