#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "kernels/base/error.h"
#include "kernels/comm/host_communicator.h"
#include "kernels/comm/rank_failure.h"
#include "kernels/counters.h"
#include "kernels/forward_batch.h"
#include "kernels/launches.h"
#include "kernels/memory_use.h"
#include "kernels/op.h"
#include "kernels/op_args.h"
#include "kernels/sampling.h"
#include "kernels/stamps.h"
#include "kernels/target.h"

namespace minfer {

class DeviceTracer;

/// Memory that only the device has.
struct DeviceMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};

/// Computes logits of rows [first_row, ...) of a batch whose forward pass has run: as many rows as there is
/// room for at a time. They overwrite those computed before.
using LogitPass = std::function<Tensor(const ForwardBatch&, int32_t first_row)>;

/// A step to run. The pointers in it stay valid until finish_step().
struct StepArgs {
  int64_t step = -1;                       ///< its number, for tools that look on
  ForwardBatch batch = {};                 ///< in host memory
  std::span<const SamplingRow> rows = {};  ///< one for each row of logits; empty: nothing is drawn
  /// The number of rows that launch_sampling() brings instead of `rows`; 0: none.
  int32_t later_rows = 0;
  OpId inputs_op = -1;  ///< brings the batch to the device
  OpId sample_op = -1;
  OpId results_op = -1;          ///< brings tokens and stamps back
  StepStamps* stamps = nullptr;  ///< null: record nothing
  bool drafts = false;           ///< the forward pass makes drafts: it is another than that of other steps
  LogitPass more_logits = {};    ///< computes logits of the rows behind those of the forward pass
  /// With several ranks: brings the tokens that the first rank drew to the others; -1: a rank alone.
  OpId share_op = -1;
  /// For a rank that is not the first, and so has no `rows`: the number of rows of the first one.
  int32_t followed_rows = 0;
  /// Run the step as a graph of its own if the backend has graphs, so that the ops' times do not include
  /// the host's launches. For measuring ops, whatever the batch. Each op must have run before without this.
  bool capture = false;
  /// Stamp the end of each op as well, unless the step is a graph: StepStamps::Stamp::end_ns. Costs the device about a microsecond
  /// an op. A backend also does it by itself now and then.
  bool stamp_ends = false;
};

/// How a step was launched.
struct LaunchedStep {
  int32_t padded_tokens = 0;  ///< tokens of no sequence that fill up the batch of a graph
  int32_t graph_batch = 0;    ///< sequences of the graph that was replayed; 0: no graph
};

/// Runs the ops from token ids to logits over a batch in backend memory. If the batch wants more logits
/// than there is room for at a time, it returns those of the first rows.
using ForwardPass = std::function<Tensor(const ForwardBatch&)>;

/// The operations a decoder needs, on one device. Called from one thread at a time (the engine thread). Ops
/// run in call order, asynchronously where the device allows; synchronize() waits. Shapes are the caller's
/// duty: a mismatch throws Error. Each op takes the OpId under which its time is recorded.
class Backend : public Target {
 public:
  /// The table that StepStamps::launches index; null: no launches are known. Lives as long as the backend.
  virtual const LaunchTable* launches() const { return nullptr; }

  /// Memory of the device, 64-byte aligned, uninitialised. `what` names it in the error if there is
  /// not enough.
  virtual Buffer allocate(size_t bytes, std::string_view what) = 0;
  /// Memory of the host from which and to which copy_rows() copies without waiting: page-locked where there is a device.
  virtual Buffer allocate_host(size_t bytes, std::string_view what) { return allocate(bytes, what); }
  virtual void copy_to_device(void* device, const void* host, size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device, size_t bytes) = 0;
  /// Copies within memory from allocate(); the two do not overlap. Keeps the order with work launched before and after it. Does not wait.
  virtual void copy_on_device(void* to, const void* from, size_t bytes) = 0;
  /// The same for rows, also from and to memory of allocate_host(). A pitch is the bytes from row to row.
  virtual void copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                         size_t rows) {
    for (size_t row = 0; row < rows; ++row)
      copy_on_device(static_cast<std::byte*>(to) + row * to_pitch,
                     static_cast<const std::byte*>(from) + row * from_pitch, row_bytes);
  }
  virtual void synchronize() = 0;
  /// None if the device uses the host's memory.
  virtual std::optional<DeviceMemory> device_memory() const { return std::nullopt; }
  /// How the device's memory is used.
  virtual MemoryUse memory_use() const { return {}; }
  /// The reader of the device's hardware counters, used on another thread than the rest; null: nothing reads them.
  /// With several ranks, the first rank's backend owns it. make_cuda_counters() makes those of the others.
  virtual CounterSampler* counters() { return nullptr; }
  /// The counter of single ops; null: nothing counts them.
  virtual RangeCounters* range_counters() { return nullptr; }

  /// The tracer of this backend's device, kernel by kernel; null: nothing can trace it. Lives as long as the backend.
  virtual DeviceTracer* tracer() { return nullptr; }
  /// Gives the ops that steps run, by OpId, to tools that look on.
  virtual void name_ops(std::span<const OpInfo> /*ops*/) {}

  /// Sizes the workspace of all ops. Before the first op; a backend that allocates as it goes ignores it.
  virtual void prepare(const StepLimits& /*limits*/) {}

  /// Runs a step up to its drawn tokens: forward(batch), then one token for each of step.rows, slice by slice
  /// if the logits come in slices. A backend may record what `forward` does and replay it later, so `forward`
  /// does the same for batches of the same sizes. May return before the device is done. Then at most
  /// info().steps_ahead steps may be launched beyond the oldest that finish_step() has not been called for;
  /// finish_step() fills `step.stamps`; and a token id of -1 - r in the batch stands for the token that row r
  /// of the step before drew.
  virtual LaunchedStep launch_step(const StepArgs& step, const ForwardPass& forward) = 0;
  /// For a step with later_rows, of which only the forward pass has been launched: draws its tokens by that number of `rows`. So the rows
  /// may depend on tokens of earlier steps: these are finished meanwhile, but no other step is launched. Their `pending_row` is -1.
  virtual void launch_sampling(std::span<const SamplingRow> /*rows*/) {
    fail("launch_sampling: the backend draws with the forward pass");
  }
  /// Waits for the oldest launched step. `out` has one element for each of its rows. A row that could draw no token has
  /// none, and stands for token 0 in a step that was launched behind it.
  virtual void finish_step(std::span<SampledToken> out) = 0;

  virtual void embed(OpId op, const EmbedArgs& args) = 0;
  virtual void norm(OpId op, const NormArgs& args) = 0;
  virtual void linear(OpId op, const LinearArgs& args) = 0;
  virtual void gate_up_swiglu(OpId op, const GateUpArgs& args) = 0;
  virtual void activate(OpId op, const ActivateArgs& args) = 0;
  virtual void rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) = 0;
  virtual void latent_kv_write(OpId op, const ForwardBatch& batch, const LatentKvWriteArgs& args) = 0;
  virtual void attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) = 0;
  virtual void head_linear(OpId op, const HeadLinearArgs& args) = 0;
  virtual void moe_route(OpId op, const MoeRouteArgs& args) = 0;
  virtual void moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) = 0;
  virtual void moe_down(OpId op, const MoeDownArgs& args) = 0;
  virtual void delta_conv(OpId op, const ForwardBatch& batch, const DeltaConvArgs& args) = 0;
  virtual void delta_rule(OpId op, const ForwardBatch& batch, const DeltaRuleArgs& args) = 0;
  virtual void head_gate(OpId op, const HeadGateArgs& args) = 0;
  virtual void short_conv(OpId op, const ForwardBatch& batch, const ShortConvArgs& args) = 0;
  virtual void hidden_rows(OpId op, const ForwardBatch& batch, const HiddenRowsArgs& args) = 0;
  virtual void mamba_scan(OpId op, const ForwardBatch& batch, const MambaScanArgs& args) = 0;
  virtual void choose_keys(OpId op, const ForwardBatch& batch, const ChooseKeysArgs& args) = 0;
  virtual void mix_streams(OpId op, const MixStreamsArgs& args) = 0;
  virtual void spread_columns(OpId op, const SpreadColumnsArgs& args) = 0;
  /// out[i] = x[rows[i]].
  virtual void gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) = 0;

  // For backends that are one of several ranks (see Rank). All ranks run the same ops in the same order on the same sizes.

  virtual void all_reduce(OpId /*op*/, const AllReduceArgs& /*args*/) {
    fail("all_reduce: the backend has no other ranks");
  }
  /// See GatherColumnsArgs.
  virtual void gather_columns(OpId /*op*/, const Tensor& /*part*/, const Tensor& /*out*/) {
    fail("gather_columns: the backend has no other ranks");
  }
};

/// The reference backend. `threads` 0: one for each core of the machine. `ranks`: it is one of several; null: alone.
std::unique_ptr<Backend> make_cpu_backend(int32_t threads, std::unique_ptr<HostCommunicator> ranks = nullptr);

/// The means by which GPUs exchange data: memory that they see of each other, NCCL.
class CudaRanks;
class ProcessGroup;

/// How GPUs add up their parts: `automatic` measures both at the start and takes the faster one for each size.
enum class AllReduceChoice : uint8_t { automatic, peer, nccl };

struct CudaRanksOptions {
  int32_t count = 2;  ///< GPUs 0 to count - 1 of this process
  /// Not null: the ranks are these processes, each with one GPU of its host (see device_of_ranks()).
  std::shared_ptr<ProcessGroup> processes = {};
  AllReduceChoice all_reduce = AllReduceChoice::automatic;
  std::shared_ptr<RankFailure> failure;   ///< any rank sets it: ends others' waits; with `processes`: theirs
  std::chrono::milliseconds patience{0};  ///< how long a rank waits for another before it sets `failure`
};

/// Throws Error if the machine has fewer supported GPUs, or if they have no means to exchange data. With processes it waits for the
/// others, and throws the same Error in all of them.
std::shared_ptr<CudaRanks> make_cuda_ranks(const CudaRanksOptions& options);
/// With processes, after their backends are gone: waits for the others and gives back the memory that they have seen of each
/// other. Without this call the memory stays until the process ends.
void end_in_order(CudaRanks& ranks);

struct CudaOptions {
  DType activation_dtype = DType::bf16;   ///< bf16, or f32: exact, and slower
  bool use_graphs = true;                 ///< replay decode steps
  Rank rank = {};                         ///< runs on GPU `rank.index`, or on the one that `ranks` has for it
  std::shared_ptr<CudaRanks> ranks = {};  ///< null: alone
};

/// The backend of a GPU, made, used and destroyed on one thread. Rank 0 alone may be used on another thread than it was made on.
/// With `ranks`, prepare() waits for prepare() of all other ranks, and a wait for the device throws DeviceError once a rank has
/// failed. Throws Error if the build has no CUDA code, or if the machine has too few supported GPUs.
std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options = {});
/// The reader of the hardware counters of one rank's GPU, for ranks of this process. Any thread; needs no backend.
std::unique_ptr<CounterSampler> make_cuda_counters(const CudaRanks& ranks, Rank rank);

}  // namespace minfer
