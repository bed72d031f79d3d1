#pragma once

#include <array>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/product/linear.h"

namespace minfer::cpu {

/// The reference backend: f32 activations; weights in the type and the memory that the host gave, except those to be quantised.
/// Synchronous: an op has ended when its call returns. A step that is launched ahead keeps its results until they are asked for.
/// A sequence's results have the same bits whatever else is in the batch. The threads of its own pool share each op; the
/// instruction set is chosen when the backend is made.
class CpuBackend : public Backend {
 public:
  /// `threads` 0: one for each core of the machine. Throws Error if it is negative. `ranks` null: there is no other rank.
  explicit CpuBackend(int32_t threads, std::unique_ptr<HostCommunicator> ranks = nullptr);

  BackendInfo info() const override;
  Buffer allocate(size_t bytes, std::string_view what) override;
  Weight load(const HostTensor& tensor) override;
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_to_host(void* host, const void* device, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override { copy_to_device(to, from, bytes); }
  void synchronize() override {}
  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override;
  void launch_sampling(std::span<const SamplingRow> rows) override;
  void finish_step(std::span<SampledToken> out) override;

  void embed(OpId op, const EmbedArgs& args) override { run(op, cpu::embed, args); }
  void norm(OpId op, const NormArgs& args) override { run(op, cpu::norm, args); }
  void linear(OpId op, const LinearArgs& args) override { run(op, cpu::linear, args); }
  void gate_up_swiglu(OpId op, const GateUpArgs& args) override { run(op, cpu::gate_up_swiglu, args); }
  void activate(OpId op, const ActivateArgs& args) override { run(op, cpu::activate, args); }
  void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) override {
    run(op, cpu::rope_kv_write, batch, args);
  }
  void latent_kv_write(OpId op, const ForwardBatch& batch, const LatentKvWriteArgs& args) override {
    run(op, cpu::latent_kv_write, batch, args);
  }
  void attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) override {
    run(op, cpu::attention, batch, args);
  }
  void head_linear(OpId op, const HeadLinearArgs& args) override { run(op, cpu::head_linear, args); }
  void delta_conv(OpId op, const ForwardBatch& batch, const DeltaConvArgs& args) override {
    run(op, cpu::delta_conv, batch, args);
  }
  void delta_rule(OpId op, const ForwardBatch& batch, const DeltaRuleArgs& args) override {
    run(op, cpu::delta_rule, batch, args);
  }
  void head_gate(OpId op, const HeadGateArgs& args) override { run(op, cpu::head_gate, args); }
  void short_conv(OpId op, const ForwardBatch& batch, const ShortConvArgs& args) override {
    run(op, cpu::short_conv, batch, args);
  }
  void hidden_rows(OpId op, const ForwardBatch& batch, const HiddenRowsArgs& args) override {
    run(op, cpu::hidden_rows, batch, args);
  }
  void mamba_scan(OpId op, const ForwardBatch& batch, const MambaScanArgs& args) override {
    run(op, cpu::mamba_scan, batch, args);
  }
  void choose_keys(OpId op, const ForwardBatch& batch, const ChooseKeysArgs& args) override {
    run(op, cpu::choose_keys, batch, args);
  }
  void mix_streams(OpId op, const MixStreamsArgs& args) override { run(op, cpu::mix_streams, args); }
  void moe_route(OpId op, const MoeRouteArgs& args) override { run(op, cpu::moe_route, args); }
  void moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) override {
    set_experts_read(run(op, cpu::moe_gate_up_swiglu, args));
  }
  void moe_down(OpId op, const MoeDownArgs& args) override { set_experts_read(run(op, cpu::moe_down, args)); }
  void spread_columns(OpId op, const SpreadColumnsArgs& args) override { run(op, cpu::spread_columns, args); }
  void gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) override {
    run(op, cpu::gather_rows, x, rows, out);
  }
  void all_reduce(OpId op, const AllReduceArgs& args) override;
  void gather_columns(OpId op, const Tensor& part, const Tensor& out) override;

 private:
  static constexpr int32_t kStepsAhead = 1;

  /// Quantises a tensor to the type that it asks for, in memory of the backend.
  Weight quantised(const HostTensor& tensor);
  /// Copies a tensor whose rows have gaps, which kernels cannot read in place.
  const void* without_gaps(const HostTensor& tensor);
  HostCommunicator& ranks();
  /// A step whose forward pass has run.
  struct ForwardedStep {
    StepArgs step;
    ForwardBatch batch;
    Tensor logits;
  };
  /// Ends a step: draws its tokens, or gets them from the first rank.
  void draw(const StepArgs& step, const ForwardBatch& batch, Tensor logits, std::span<const SamplingRow> rows,
            std::vector<SampledToken>& sampled);
  /// Brings the first rank's tokens to the others.
  void share_tokens(OpId op, std::span<SampledToken> sampled);
  void stamp(OpId op);
  /// Runs an op of ops.h or product/linear.h.
  template <class Result, class... Parameters, class... Args>
  Result run(OpId op, Result (*compute)(Parameters...), const Args&... args) {
    stamp(op);
    return compute(args..., context());
  }
  /// Stamps the op that was stamped last with the time at which all ranks had come.
  void stamp_arrival();
  /// Sets the number for the op that was stamped last.
  void set_experts_read(int32_t experts);
  ForwardBatch with_known_tokens(ForwardBatch batch, std::span<const SampledToken> previous);
  std::span<const SamplingRow> with_known_tokens(std::span<const SamplingRow> rows,
                                                 std::span<const SampledToken> previous);
  OpContext context() { return {&pool_, isa_, lanes_, &workspace_}; }

  ThreadPool pool_;
  Isa isa_;
  const LaneKernels* lanes_;
  Workspace workspace_;
  std::unique_ptr<HostCommunicator> ranks_;  ///< null: alone
  std::vector<Buffer> copies_;    ///< of weights that are parts of the host's tensors, or that are quantised
  StepStamps* stamps_ = nullptr;  ///< of the step in progress
  std::optional<ForwardedStep> awaiting_rows_;  ///< the newest step, until launch_sampling()

  /// Results of the launched steps, by step number modulo the array's size.
  std::array<std::vector<SampledToken>, kStepsAhead + 1> sampled_;
  uint64_t num_launched_ = 0;
  uint64_t num_finished_ = 0;
  std::vector<float> gathered_;  ///< columns of all ranks, rank after rank
  std::vector<int32_t> shared_tokens_;
  // Copies of a step's inputs, with the tokens that the step before drew filled in.
  std::vector<int32_t> token_ids_;
  std::vector<SamplingRow> rows_;
  std::vector<std::vector<TokenCount>> counts_;
};

}  // namespace minfer::cpu
