#pragma once

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/chosen/choose_keys.h"
#include "kernels/cuda/comm/rank_ops.h"
#include "kernels/cuda/delta/delta_ops.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/launch/device_clock.h"
#include "kernels/cuda/launch/launch_log.h"
#include "kernels/cuda/launch/stamp_only.h"
#include "kernels/cuda/moe/moe_products.h"
#include "kernels/cuda/product/head_product.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/profiler/cupti_tracer.h"
#include "kernels/cuda/profiler/nvtx_ranges.h"
#include "kernels/cuda/profiler/pm_sampler.h"
#include "kernels/cuda/profiler/range_profiler.h"
#include "kernels/cuda/sampling/sample.h"
#include "kernels/cuda/sampling/sampling_tables.h"
#include "kernels/cuda/step/step_memory.h"
#include "kernels/cuda/weights/weight_memory.h"

namespace minfer::cuda {

/// The backend of one GPU. Ops run in order on one stream, launched with PDL. The residual stream and logits
/// are f32; the other activations are bf16 or f32, as CudaOptions say. All memory is allocated by the end of
/// prepare().
///
/// A step of decoding sequences that draws a token for each runs as a CUDA graph of the next larger bucket of
/// sequences. The first step of its kind runs eagerly, the second is captured, later ones replay the graph. With one
/// rank, two other steps do the same: one that checks draft tokens, by buckets of sequences and of tokens, and one that
/// computes up to kMostPromptTokens tokens of prompts and nothing else. Prompts beside decoding run eagerly, because
/// the number of decoding sequences is a dimension of their kernels' grids. If a step's rows come later, its graph is
/// the forward pass, for any rows; the rest is launched eagerly when they have come. One step may be launched while
/// another runs; results come through page-locked memory. A CUDA error is sticky: every later call throws DeviceError.
///
/// With several ranks, eager steps have the sizes of their bucket too, since the other ranks may replay a graph of it.
class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  BackendInfo info() const override;
  const LaunchTable* launches() const override { return &log_.table(); }
  ShapeLimits shape_limits() const override { return cuda::shape_limits(options_.activation_dtype); }
  Buffer allocate(size_t bytes, std::string_view what) override;
  void reserve_weights(std::span<const HostTensor> tensors) override { weights_.reserve(tensors); }
  Weight load(const HostTensor& tensor) override { return weights_.load(stream_.get(), tensor); }
  void copy_to_device(void* device, const void* host, size_t bytes) override;
  void copy_to_host(void* host, const void* device, size_t bytes) override;
  void copy_on_device(void* to, const void* from, size_t bytes) override;
  Buffer allocate_host(size_t bytes, std::string_view what) override;
  void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                 size_t rows) override;
  void synchronize() override;
  std::optional<DeviceMemory> device_memory() const override;
  MemoryUse memory_use() const override;
  DeviceTracer* tracer() override { return options_.rank.is_first() ? &tracer_ : nullptr; }
  void name_ops(std::span<const OpInfo> ops) override { ranges_.name_ops(ops); }
  CounterSampler* counters() override { return counters_.get(); }
  RangeCounters* range_counters() override { return range_counters_.get(); }
  void prepare(const StepLimits& limits) override;

  LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) override;
  void launch_sampling(std::span<const SamplingRow> rows) override;
  void finish_step(std::span<SampledToken> out) override;

  bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size) const override;
  bool takes_norm(std::span<const Weight> weights, int64_t tokens) const override;
  void embed(OpId op, const EmbedArgs& args) override { run(op, cuda::embed, args); }
  void norm(OpId op, const NormArgs& args) override { run(op, cuda::norm, args); }
  void linear(OpId op, const LinearArgs& args) override;
  void gate_up_swiglu(OpId op, const GateUpArgs& args) override;
  void activate(OpId op, const ActivateArgs& args) override { run(op, cuda::activate, args); }
  void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) override {
    run(op, cuda::rope_kv_write, batch, args);
  }
  void latent_kv_write(OpId op, const ForwardBatch& batch, const LatentKvWriteArgs& args) override {
    run(op, cuda::latent_kv_write, batch, args);
  }
  void attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) override;
  void head_linear(OpId op, const HeadLinearArgs& args) override { run(op, cuda::head_product, args); }
  void moe_route(OpId op, const MoeRouteArgs& args) override;
  void moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) override;
  void moe_down(OpId op, const MoeDownArgs& args) override;
  void delta_conv(OpId op, const ForwardBatch& batch, const DeltaConvArgs& args) override {
    run(op, cuda::delta_conv, batch, args);
  }
  void delta_rule(OpId op, const ForwardBatch& batch, const DeltaRuleArgs& args) override {
    run(op, cuda::delta_rule, batch, args);
  }
  void head_gate(OpId op, const HeadGateArgs& args) override { run(op, cuda::head_gate, args); }
  void hidden_rows(OpId op, const ForwardBatch& batch, const HiddenRowsArgs& args) override {
    run(op, cuda::hidden_rows, batch, args);
  }
  void short_conv(OpId op, const ForwardBatch& batch, const ShortConvArgs& args) override {
    run(op, cuda::short_conv, batch, args);
  }
  void mamba_scan(OpId op, const ForwardBatch& batch, const MambaScanArgs& args) override {
    run(op, cuda::mamba_scan, batch, args);
  }
  void choose_keys(OpId op, const ForwardBatch& batch, const ChooseKeysArgs& args) override;
  void mix_streams(OpId op, const MixStreamsArgs& args) override { run(op, cuda::mix_streams, args); }
  void spread_columns(OpId op, const SpreadColumnsArgs& args) override {
    run(op, cuda::spread_columns, args);
  }
  void gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) override {
    run(op, cuda::gather_rows, x, rows, out);
  }
  void all_reduce(OpId op, const AllReduceArgs& args) override;
  void gather_columns(OpId op, const Tensor& part, const Tensor& out) override;

 protected:
  /// The stream that all ops run on, one after the other.
  cudaStream_t stream() const { return stream_.get(); }

 private:
  static constexpr size_t kOpenSteps = 2;

  /// The ops with workspace, made once the limits are known.
  struct Workspace {
    Workspace(const CudaOptions& options, cudaStream_t stream, int32_t num_sms, const StepLimits& limits);
    StepMemory step;
    SamplingTables sampling_tables;
    LinearOps linear;
    MoeProducts moe;
    AttentionOps attention;
    KeyChoiceOps choice;
    SampleOps sample;
    std::unique_ptr<RankOps> ranks;  ///< null: one rank alone
    int32_t max_sequences;
    int32_t max_tokens;
    int32_t max_draft_tokens;  ///< of a graph of steps that check drafts: tokens whose logits fit at a time
  };
  /// The inputs that the kernels of a graph, and so the graph, depend on.
  struct GraphKey {
    int32_t sequences = 0;
    int32_t tokens = 0;
    int32_t logit_rows = 0;
    bool drafts = false;   ///< StepArgs::drafts
    bool prompts = false;  ///< nothing is decoded
    bool forward_only = false;
    bool greedy_only = true;
    bool logprobs = false;
    bool stamped = true;
    auto operator<=>(const GraphKey&) const = default;
  };
  /// The launches of a step.
  struct LaunchedOps {
    std::vector<LaunchLog::OpRun> runs;
    std::vector<int32_t> launches;
  };
  /// The state at the end of a step's forward pass.
  struct ForwardEnd {
    Tensor logits;
    int32_t num_stamps = 0;
    int32_t num_routed = 0;
  };
  struct CapturedStep {
    GraphExec graph;  ///< null until its kind is met again
    LaunchedOps ops;
    ForwardEnd forward_end;
  };
  /// The newest step, if only its forward pass has been launched.
  struct AwaitingRows {
    StepArgs step;
    LaunchSizes sizes;
    ForwardEnd forward_end;
    bool stamps_ends = false;
  };
  struct OpenStep {
    StepStamps* stamps = nullptr;
    LaunchedOps ops;
    size_t num_rows = 0;
    int64_t launch_ns = 0;
    Event done;
    CapturedStep own;  ///< the graph of a step with StepArgs::capture
  };

  /// Runs `launches` as a run of `op`.
  template <class Launches>
  void run_op(OpId op, Launches launches);
  /// The same for an op that is one function.
  template <class... Parameters, class... Args>
  void run(OpId op, void (*launch_op)(Launch&, Parameters...), const Args&... args) {
    run_op(op, [&](Launch& launch) { launch_op(launch, args...); });
  }
  /// Notes which count of chosen experts belongs to the product being launched.
  void note_routed_layer();
  void read_stamps(const OpenStep& step, size_t slot);
  Workspace& workspace();
  RankOps& ranks();
  bool is_alone() const { return options_.ranks == nullptr; }
  /// Waits until `query` is no longer cudaErrorNotReady; throws once another rank has failed.
  void wait_with_ranks(const std::function<cudaError_t()>& query, std::string_view what);
  /// Rows of logits for which this rank draws tokens; for which the first rank does.
  static int32_t own_rows(const StepArgs& step) {
    return static_cast<int32_t>(step.rows.size()) + step.later_rows;
  }
  int32_t drawn_rows(const StepArgs& step) const {
    return options_.rank.is_first() ? own_rows(step) : step.followed_rows;
  }
  /// Launches every kernel of a step, or of its forward pass if its rows come later; log_ records them.
  ForwardEnd enqueue(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode,
                     const ForwardPass& forward);
  /// Launches the part of a step behind the forward pass.
  void enqueue_sampling(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode, Tensor logits);
  void stamp_end();
  CapturedStep capture(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode,
                       const ForwardPass& forward);
  /// Sizes of the graph that serves this step; no sequences: none does.
  LaunchSizes graph_sizes(const StepArgs& step);
  LaunchSizes prompt_graph_sizes(const StepArgs& step);
  CapturedStep* graph_of(const StepArgs& step, const GraphKey& key, SampleMode mode,
                         const ForwardPass& forward);

  CudaOptions options_;
  CudaDevice device_;
  const DeviceFacts facts_;
  Stream stream_;
  DeviceClock clock_;
  int64_t used_before_bytes_ = 0;             ///< of the device's memory, when this was made
  std::unique_ptr<CounterSampler> counters_;  ///< of the first rank
  /// Null with several ranks: it runs ops again and again, which ops between ranks do not allow.
  std::unique_ptr<RangeCounters> range_counters_;
  WeightMemory weights_;
  std::unique_ptr<Workspace> workspace_;
  std::map<GraphKey, CapturedStep> graphs_;

  NvtxRanges ranges_;
  LaunchLog log_;              ///< of the step being enqueued
  int32_t num_stamps_ = 0;     ///< given to its kernels so far
  int32_t num_routed_ = 0;     ///< layers of the step whose chosen experts are counted, so far
  int32_t routed_layer_ = -1;  ///< the layer that products of experts belong to; -1: none
  bool stamping_ = false;      ///< the step is recorded
  bool stamping_ends_ =
      false;  ///< with the end of every op, which costs a kernel after an op whose last kernel is a library's
  bool capturing_ = false;  ///< into a graph: the host does nothing between two of its ops
  uint64_t num_eager_ = 0;  ///< recorded steps that ran without a graph
  CuptiTracer tracer_;
  std::array<OpenStep, kOpenSteps> steps_;
  std::optional<AwaitingRows> awaiting_rows_;
  uint64_t num_launched_ = 0;
  uint64_t num_finished_ = 0;
};

template <class Launches>
void CudaBackend::run_op(OpId op, Launches launches) {
  if (!stamping_) {
    Launch launch(stream_.get(), device_.multiprocessors);
    return launches(launch);
  }
  ranges_.begin_op(op);
  const bool front_is_ended = !log_.runs().empty() && log_.runs().back().end_stamp >= 0;
  const int32_t begin = num_stamps_, end = num_stamps_ + 1;
  num_stamps_ += 2;
  const StepMemory& memory = workspace().step;
  log_.begin_op(op);
  Launch launch(stream_.get(), device_.multiprocessors, {{memory.stamp(begin)}, memory.stamp(end)}, &log_,
                capturing_ && front_is_ended);
  launches(launch);
  ranges_.end_op();
  if (stamping_ends_ && !launch.ends_with_stamp()) stamp_only(launch);
  LaunchLog::OpRun& run = log_.runs().back();
  if (launch.began_with_stamp()) run.begin_stamp = begin;
  if (launch.ends_with_stamp()) run.end_stamp = end;
}

}  // namespace minfer::cuda
