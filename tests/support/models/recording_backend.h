#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/backend.h"

namespace minfer::test {

/// The device that a RecordingBackend stands for.
struct RecordedDevice {
  DType activation_dtype = DType::f32;
  bool takes_norms = false;  ///< products of one token take norms, as on a GPU
  bool takes_fp8 =
      false;  ///< the layers' weights are FP8; their products take x in FP8 from two tokens on, as on Hopper
};

/// Computes nothing. For each op that it is told to run it records the op's name, its arguments, and which op last wrote each operand.
/// So two recordings are equal if they compute the same from the same data, wherever the data lies.
class RecordingBackend : public Backend {
 public:
  explicit RecordingBackend(RecordedDevice device) : device_(device) {}

  /// The recording of the ops since the last call, one op a line.
  std::string take_recording();
  void name_ops(std::span<const OpInfo> ops) override { ops_ = ops; }

  BackendInfo info() const override {
    return {.name = "recording", .device = "none", .activation_dtype = device_.activation_dtype};
  }
  Buffer allocate(size_t bytes, std::string_view what) override;
  Weight load(const HostTensor& tensor) override;
  void copy_to_device(void*, const void*, size_t) override {}
  void copy_to_host(void*, const void*, size_t) override {}
  void copy_on_device(void*, const void*, size_t) override {}
  void synchronize() override {}
  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override;
  void finish_step(std::span<SampledToken>) override {}
  bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size) const override;
  bool takes_norm(std::span<const Weight> weights, int64_t tokens) const override;

  void embed(OpId op, const EmbedArgs& args) override;
  void norm(OpId op, const NormArgs& args) override;
  void linear(OpId op, const LinearArgs& args) override;
  void gate_up_swiglu(OpId op, const GateUpArgs& args) override;
  void activate(OpId op, const ActivateArgs& args) override;
  void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) override;
  void latent_kv_write(OpId op, const ForwardBatch& batch, const LatentKvWriteArgs& args) override;
  void attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) override;
  void head_linear(OpId op, const HeadLinearArgs& args) override;
  void moe_route(OpId op, const MoeRouteArgs& args) override;
  void moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) override;
  void moe_down(OpId op, const MoeDownArgs& args) override;
  void delta_conv(OpId op, const ForwardBatch& batch, const DeltaConvArgs& args) override;
  void delta_rule(OpId op, const ForwardBatch& batch, const DeltaRuleArgs& args) override;
  void head_gate(OpId op, const HeadGateArgs& args) override;
  void short_conv(OpId op, const ForwardBatch& batch, const ShortConvArgs& args) override;
  void hidden_rows(OpId op, const ForwardBatch& batch, const HiddenRowsArgs& args) override;
  void mamba_scan(OpId op, const ForwardBatch& batch, const MambaScanArgs& args) override;
  void choose_keys(OpId op, const ForwardBatch& batch, const ChooseKeysArgs& args) override;
  void mix_streams(OpId op, const MixStreamsArgs& args) override;
  void spread_columns(OpId op, const SpreadColumnsArgs& args) override;
  void gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) override;
  void all_reduce(OpId op, const AllReduceArgs& args) override;
  void gather_columns(OpId op, const Tensor& part, const Tensor& out) override;

 private:
  struct Written {
    const std::byte* begin;
    const std::byte* end;
    size_t line;
    std::string name;
  };

  void begin(OpId op);
  void add(std::string_view name, const Tensor& tensor);
  void add(std::string_view name, const Weight& weight);
  void add(std::string_view name, std::span<const Weight> weights);
  void add(std::string_view name, const FrontNorm& norm);
  void add(std::string_view name, const KvLayer& kv);
  void add(std::string_view name, const AttentionWindow& window);
  void add(std::string_view name, const ForwardBatch& batch);
  void add(std::string_view name, const RecurrentLayer& state);
  void add_number(std::string_view name, double value);
  /// Describes a buffer of the backend: by the op that last wrote there, else by the purpose that it was allocated for.
  void add_memory(std::string_view name, const void* data);
  void writes(std::string_view name, const Tensor& tensor);
  void writes(std::string_view name, const void* data, size_t bytes);
  std::string place_of(const void* data) const;

  RecordedDevice device_;
  std::span<const OpInfo> ops_;
  std::map<const void*, std::string> buffers_;  ///< by their first address
  std::map<const void*, std::string> weights_;
  std::vector<Written> written_;
  std::vector<std::string> lines_;
  ForwardBatch batch_;
};

}  // namespace minfer::test
