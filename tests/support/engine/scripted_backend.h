#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "tests/support/engine/scripted_model.h"

namespace minfer::test {

/// A backend that computes nothing: a ScriptedModel chooses each next token. So thousands of streams cost
/// only the work around the model, and an answer depends on its prompt alone. A test may make steps take
/// long, hang or fail. One step may be launched ahead, as on a GPU.
class ScriptedBackend final : public Backend {
 public:
  struct Options {
    int32_t num_blocks = 0;  ///< as in EngineOptions
    int32_t block_size = 16;
    int32_t vocab_size = 0;
    uint64_t seed = 1;
    /// Called on the engine thread when a step (from 0) is launched, and before its tokens are taken. Their exceptions
    /// become the step's failure.
    std::function<void(int64_t step)> before_step = nullptr;
    std::function<void(int64_t step)> before_finish = nullptr;
    /// Replaces the model: the token at `position` of a sequence.
    std::function<TokenId(int64_t position)> script = nullptr;
    /// Each step is one op that launched one kernel, the first of `launches`. Both pointers outlive the backend.
    DeviceTracer* tracer = nullptr;
    const LaunchTable* launches = nullptr;
    MemoryUse memory = {};
    std::optional<DeviceMemory> device_memory = {};
  };

  explicit ScriptedBackend(Options options);

  BackendInfo info() const override {
    return {.name = "cpu", .device = "scripted", .steps_ahead = kStepsAhead, .cache_bytes = 1 << 20};
  }
  Buffer allocate(size_t bytes, std::string_view what) override { return memory_->allocate(bytes, what); }
  Weight load(const HostTensor& tensor) override { return memory_->load(tensor); }
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_to_host(void* host, const void* device, size_t bytes) override;
  void copy_on_device(void* /*to*/, const void* /*from*/, size_t /*bytes*/) override {}
  void synchronize() override {}
  DeviceTracer* tracer() override { return options_.tracer; }
  MemoryUse memory_use() const override { return options_.memory; }
  std::optional<DeviceMemory> device_memory() const override { return options_.device_memory; }
  const LaunchTable* launches() const override { return options_.launches; }
  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override;
  void finish_step(std::span<SampledToken> out) override;

  void embed(OpId, const EmbedArgs&) override { fail_op(); }
  void norm(OpId, const NormArgs&) override { fail_op(); }
  void activate(OpId, const ActivateArgs&) override { fail_op(); }
  void linear(OpId, const LinearArgs&) override { fail_op(); }
  void gate_up_swiglu(OpId, const GateUpArgs&) override { fail_op(); }
  void rope_kv_write(OpId, const ForwardBatch&, const RopeKvWriteArgs&) override { fail_op(); }
  void latent_kv_write(OpId, const ForwardBatch&, const LatentKvWriteArgs&) override { fail_op(); }
  void attention(OpId, const ForwardBatch&, const AttentionArgs&) override { fail_op(); }
  void head_linear(OpId, const HeadLinearArgs&) override { fail_op(); }
  void moe_route(OpId, const MoeRouteArgs&) override { fail_op(); }
  void moe_gate_up_swiglu(OpId, const MoeGateUpArgs&) override { fail_op(); }
  void moe_down(OpId, const MoeDownArgs&) override { fail_op(); }
  void delta_conv(OpId, const ForwardBatch&, const DeltaConvArgs&) override { fail_op(); }
  void delta_rule(OpId, const ForwardBatch&, const DeltaRuleArgs&) override { fail_op(); }
  void spread_columns(OpId, const SpreadColumnsArgs&) override { fail_op(); }
  void hidden_rows(OpId, const ForwardBatch&, const HiddenRowsArgs&) override { fail_op(); }
  void short_conv(OpId, const ForwardBatch&, const ShortConvArgs&) override { fail_op(); }
  void mamba_scan(OpId, const ForwardBatch&, const MambaScanArgs&) override { fail_op(); }
  void choose_keys(OpId, const ForwardBatch&, const ChooseKeysArgs&) override { fail_op(); }
  void head_gate(OpId, const HeadGateArgs&) override { fail_op(); }
  void mix_streams(OpId, const MixStreamsArgs&) override { fail_op(); }
  void gather_rows(OpId, const Tensor&, const int32_t*, const Tensor&) override { fail_op(); }

 private:
  static constexpr int32_t kStepsAhead = 1;
  using Tokens = std::vector<TokenId>;

  ForwardBatch with_known_tokens(ForwardBatch batch, const Tokens& previous);
  [[noreturn]] static void fail_op();

  const Options options_;
  std::unique_ptr<Backend> memory_;
  ScriptedModel model_;
  std::array<Tokens, kStepsAhead + 1> drawn_;  ///< by the newest steps: those of step n at n % size
  std::vector<int32_t> token_ids_;             ///< of a batch with newest tokens that the engine did not know
  int64_t num_launched_ = 0, num_finished_ = 0;
};

}  // namespace minfer::test
