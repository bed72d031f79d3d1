#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device_clock.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/device/step_memory.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sampling_tables.h"
#include "kernels/cuda/weights/weight_memory.h"

namespace minfer::cuda {

/// The backend of one GPU. Ops run in order on one stream, launched with PDL. The residual stream and logits
/// are f32; the other activations are bf16 or f32, as CudaOptions say. All memory is allocated by prepare()
/// at the latest.
///
/// A step of decoding sequences that draws a token for each runs as a CUDA graph of the next larger bucket of
/// sequences: eagerly when its kind is met for the first time, captured the second time, replayed from then
/// on. One step may be launched while another runs; results come through page-locked memory. A CUDA error is
/// sticky: every later call throws DeviceError.
class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  BackendInfo info() const override;
  ShapeLimits shape_limits() const override { return cuda::shape_limits(options_.activation_dtype); }
  Buffer allocate(size_t bytes, std::string_view what) override;
  void reserve_weights(std::span<const HostTensor> tensors) override { weights_.reserve(tensors); }
  Weight load(const HostTensor& tensor) override { return weights_.load(stream_.get(), tensor); }
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_to_host(void* host, const void* device, size_t bytes) override;
  void synchronize() override;
  std::optional<DeviceMemory> device_memory() const override;
  void prepare(const StepLimits& limits) override;

  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override;
  void finish_step(std::span<SampledToken> out) override;

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

 private:
  static constexpr size_t kOpenSteps = 2;

  /// The ops with workspace, made once the limits are known.
  struct Workspace {
    Workspace(int32_t num_sms, const StepLimits& limits);
    StepMemory step;
    SamplingTables sampling_tables;
    LinearOps linear;
    AttentionOps attention;
    SampleOps sample;
    int32_t max_sequences;
  };
  /// What the kernels of a graph, and so the graph, depend on.
  struct GraphKey {
    int32_t sequences = 0;
    bool greedy_only = true;
    bool logprobs = false;
    bool stamped = true;
    auto operator<=>(const GraphKey&) const = default;
  };
  struct CapturedStep {
    GraphExec graph;        ///< null until its kind is met again
    std::vector<OpId> ops;  ///< in stamp order
  };
  struct OpenStep {
    StepStamps* stamps = nullptr;
    std::vector<OpId> ops;  ///< in stamp order
    size_t num_rows = 0;
    int64_t launch_ns = 0;
    Event done;
    CapturedStep own;  ///< of a step with StepArgs::capture
  };

  Launch begin_op(OpId op);
  Workspace& workspace();
  /// Launches every kernel of a step; recorded into ops_.
  void enqueue(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode, const ForwardPass& forward);
  CapturedStep capture(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode,
                       const ForwardPass& forward);
  CapturedStep* graph_of(const StepArgs& step, const GraphKey& key, SampleMode mode,
                         const ForwardPass& forward);

  CudaOptions options_;
  CudaDevice device_;
  Stream stream_;
  DeviceClock clock_;
  WeightMemory weights_;
  std::unique_ptr<Workspace> workspace_;
  std::map<GraphKey, CapturedStep> graphs_;

  std::vector<OpId> ops_;  ///< of the step being enqueued, in stamp order
  bool stamping_ = false;  ///< between the first and the last kernel of a step that is stamped
  std::array<OpenStep, kOpenSteps> steps_;
  uint64_t num_launched_ = 0;
  uint64_t num_finished_ = 0;
};

}  // namespace minfer::cuda
