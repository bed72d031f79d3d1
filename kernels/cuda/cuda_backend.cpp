#include "kernels/cuda/cuda_backend.h"

#include <algorithm>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/graph_batch.h"
#include "kernels/cuda/device/memory_ledger.h"
#include "kernels/cuda/device/stamp_only.h"
#include "kernels/cuda/elementwise/activate.h"
#include "kernels/cuda/elementwise/embed.h"
#include "kernels/cuda/elementwise/latent_kv.h"
#include "kernels/cuda/elementwise/norm.h"
#include "kernels/cuda/elementwise/rope.h"
#include "kernels/cuda/moe/moe_route.h"
#include "kernels/cuda/product/head_product.h"
#include "kernels/tuning/plan_source.h"

namespace minfer::cuda {
namespace {

/// One in so many eager steps has the end of each op stamped, which shows what their times are without idle time.
constexpr uint64_t kStepsForACloseLook = 32;
/// Beyond so many there are no new ones of steps that check drafts or compute prompts, whose sizes have two dimensions.
constexpr size_t kMostGraphs = 128;

int32_t device_index(const CudaOptions& options) {
  return options.ranks != nullptr ? options.ranks->device_of(options.rank) : options.rank.index;
}

/// Of what would run on the device; nothing if no build would.
std::string how_to_build(const CudaDevice& device) {
  if (!is_usable_with(device, kLeastSharedBytes)) return "";
  return fmt::format(": configure with -DCMAKE_CUDA_ARCHITECTURES={}{}", device.major, device.minor);
}

/// Makes device `index` the current one.
CudaDevice select_device(int32_t index) {
  const std::vector<CudaDevice> devices = cuda_devices();
  if (devices.empty()) fail("device cuda: no CUDA device was found (nvidia-smi lists those the driver sees)");
  if (std::ssize(devices) <= index) {
    fail("device cuda: {} GPUs are needed, {} of the machine's {} are supported", index + 1,
         std::ranges::count_if(devices, is_usable), devices.size());
  }
  const CudaDevice& device = devices[static_cast<size_t>(index)];
  if (!is_usable(device)) {
    fail(
        "device cuda: {} has compute capability {}.{} and {} bytes of shared memory a thread block, expected "
        "at least 8.0 and {} in a build for {}{}",
        device.name, device.major, device.minor, device.shared_bytes, kNeededSharedBytes, MINFER_CUDA_TARGETS,
        how_to_build(device));
  }
  check(cudaSetDevice(index), "selecting the device");
  if (!has_code_for_device()) {
    fail("device cuda: this build has code for compute capability {}, {} has {}.{}{}", MINFER_CUDA_TARGETS,
         device.name, device.major, device.minor, how_to_build(device));
  }
  return device;
}

/// Ranks that draw no tokens need next to nothing for it.
StepLimits limits_of_sampling(const StepLimits& limits, Rank rank) {
  StepLimits needed = limits;
  if (!rank.is_first()) {
    needed.vocab_size = 1;
    needed.max_sequences = 1;
  }
  return needed;
}

}  // namespace

CudaBackend::Workspace::Workspace(const CudaOptions& options, cudaStream_t stream, int32_t num_sms,
                                  const StepLimits& limits)
    : step(limits),
      sampling_tables(limits_of_sampling(limits, options.rank)),
      linear(num_sms, limits, options.plans),
      attention(num_sms, limits),
      sample(num_sms, limits_of_sampling(limits, options.rank)),
      max_sequences(limits.max_sequences),
      max_tokens(limits.max_tokens),
      max_draft_tokens(std::min({limits.max_tokens, limits.max_logit_rows, limits.logit_slice})) {
  if (options.ranks != nullptr)
    ranks = std::make_unique<RankOps>(options.ranks, options.rank, stream, num_sms, limits);
}

CudaBackend::CudaBackend(const CudaOptions& options)
    : options_(options),
      device_(select_device(device_index(options))),
      has_wgmma_(has_wgmma()),
      stream_(make_stream()),
      clock_(stream_.get()),
      log_(device_.sm, device_.major >= 9) {
  if (options_.plans != nullptr) options_.plans->check_device(plan_device(device_));
  const auto [free_bytes, total_bytes] = free_and_total_bytes();
  used_before_bytes_ = total_bytes - free_bytes;
  if (options_.rank.is_first()) {
    counters_ = make_pm_sampler(device_index(options_));
    if (is_alone()) range_counters_ = make_range_profiler(device_index(options_));
  }
  for (OpenStep& step : steps_)
    step.done = make_event();
}

CudaBackend::~CudaBackend() {
  try {
    synchronize();  // nothing that it still uses may be freed
  } catch (const std::exception&) {
    cudaStreamSynchronize(stream_.get());  // a rank has failed: what waited for it ends by itself
  }
}

BackendInfo CudaBackend::info() const {
  return {.name = "cuda",
          .device = fmt::format("{}, sm_{}{}", device_.name, device_.major, device_.minor),
          .activation_dtype = options_.activation_dtype,
          .threads = 1,
          .steps_ahead = kOpenSteps - 1,
          .asynchronous = true,
          .copies_weights = true,
          .takes_masks = true,
          .cache_bytes = device_.cache_bytes,
          .all_reduce = is_alone() ? std::string() : options_.ranks->describe()};
}

Buffer CudaBackend::allocate(size_t bytes, std::string_view what) {
  DeviceBuffer buffer(bytes, what);
  return Buffer(buffer.release(), bytes, [](void* data) { FreeDevice()(data); });
}

void CudaBackend::copy_to_device(void* device, const void* host, size_t bytes) {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_.get()), "copying to the device");
  synchronize();
}

void CudaBackend::copy_to_host(void* host, const void* device, size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_.get()), "copying to the host");
  synchronize();
}

void CudaBackend::synchronize() {
  if (is_alone()) return check(cudaStreamSynchronize(stream_.get()), "waiting for the device");
  wait_with_ranks([this] { return cudaStreamQuery(stream_.get()); }, "the device");
}

void CudaBackend::wait_with_ranks(const std::function<cudaError_t()>& query, std::string_view what) {
  options_.ranks->wait(options_.rank, query, what, [this] {
    if (workspace_ != nullptr && workspace_->ranks != nullptr) workspace_->ranks->abort();
  });
}

std::optional<DeviceMemory> CudaBackend::device_memory() const {
  const auto [free_bytes, total_bytes] = free_and_total_bytes();
  return DeviceMemory{free_bytes, total_bytes};
}

MemoryUse CudaBackend::memory_use() const {
  const auto [free_bytes, total_bytes] = free_and_total_bytes();
  return {.total_bytes = total_bytes,
          .used_bytes = total_bytes - free_bytes,
          .used_before_bytes = used_before_bytes_,
          .parts = MemoryLedger::of_process().parts()};
}

void CudaBackend::prepare(const StepLimits& limits) {
  weights_.end_loading(stream_.get());
  workspace_ = std::make_unique<Workspace>(options_, stream_.get(), device_.multiprocessors, limits);
}

RankOps& CudaBackend::ranks() {
  if (workspace().ranks == nullptr) fail("the CUDA backend has no other ranks");
  return *workspace().ranks;
}

CudaBackend::Workspace& CudaBackend::workspace() {
  if (workspace_ == nullptr) fail("the CUDA backend is not prepared");
  return *workspace_;
}

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

LaunchedStep CudaBackend::launch_step(const StepArgs& step, const ForwardPass& forward) {
  if (num_launched_ - num_finished_ >= kOpenSteps) fail("{} steps are launched already", kOpenSteps);
  const size_t slot = num_launched_ % kOpenSteps;
  OpenStep& open = steps_[slot];
  open.launch_ns = now_ns();
  open.stamps = step.stamps;
  open.num_rows = step.rows.size();
  ranges_.begin_step(step.step, step.batch);
  const std::span<const PlacedRow> placed =
      workspace().sampling_tables.bring(Launch(stream_.get(), device_.multiprocessors), step.rows);
  const SampleMode mode = workspace().step.stage(slot, step.batch, step.rows, placed);

  const ForwardBatch& batch = step.batch;
  const LaunchSizes graph = graph_sizes(step);
  const bool has_graph = graph.sequences > 0;
  LaunchSizes sizes{batch.num_tokens, batch.num_sequences, batch.num_logit_rows};
  LaunchedStep launched;
  if (!is_alone() && has_graph) {
    sizes = graph;
    launched.padded_tokens = graph.tokens - batch.num_tokens;
  }
  CapturedStep* captured = nullptr;
  if (step.capture && options_.use_graphs) {
    open.own = capture(step, sizes, mode, forward);
    captured = &open.own;
  } else if (has_graph) {
    const GraphKey key{.sequences = graph.sequences,
                       .tokens = graph.tokens,
                       .logit_rows = graph.logit_rows,
                       .prompts = batch.num_decode_sequences == 0,
                       .greedy_only = mode.greedy_only,
                       .logprobs = mode.logprobs,
                       .stamped = step.stamps != nullptr};
    captured = graph_of(step, key, mode, forward);
    if (captured != nullptr)
      launched = {.padded_tokens = graph.tokens - batch.num_tokens, .graph_batch = graph.sequences};
  }
  if (captured != nullptr) {
    check(cudaGraphLaunch(captured->graph.get(), stream_.get()), "launch of a step's graph");
    open.ops = captured->ops;
  } else {
    stamping_ends_ = step.stamps != nullptr && (step.look_closely || num_eager_++ % kStepsForACloseLook == 0);
    enqueue(step, sizes, mode, forward);
    stamping_ends_ = false;
    open.ops.runs.assign(log_.runs().begin(), log_.runs().end());
    open.ops.launches.assign(log_.launches().begin(), log_.launches().end());
  }
  check(cudaEventRecord(open.done.get(), stream_.get()), "launch of a step");
  ++num_launched_;
  ranges_.end_step();
  return launched;
}

LaunchSizes CudaBackend::graph_sizes(const StepArgs& step) {
  const ForwardBatch& batch = step.batch;
  const bool draws_behind_each = batch.num_tokens == batch.num_decode_tokens &&
                                 batch.num_logit_rows == batch.num_tokens &&
                                 drawn_rows(step) == batch.num_tokens;
  if (!options_.use_graphs) return {};
  if (batch.num_decode_sequences == 0) return prompt_graph_sizes(step);
  if (!draws_behind_each) return {};
  const int32_t sequences = graph_batch(batch.num_decode_sequences, workspace().max_sequences);
  if (batch.num_tokens == batch.num_decode_sequences) return {sequences, sequences, sequences};
  const int32_t tokens =
      is_alone() ? graph_tokens(batch.num_tokens, sequences, workspace().max_draft_tokens) : 0;
  return tokens > 0 ? LaunchSizes{tokens, sequences, tokens} : LaunchSizes{};
}

LaunchSizes CudaBackend::prompt_graph_sizes(const StepArgs& step) {
  const ForwardBatch& batch = step.batch;
  // A prompt draws a token behind its last one, or none; scored prompts draw more.
  if (!is_alone() || drawn_rows(step) != batch.num_logit_rows || batch.num_logit_rows > batch.num_sequences)
    return {};
  const int32_t sequences = graph_batch(batch.num_sequences, workspace().max_sequences);
  const int32_t tokens = prompt_graph_tokens(batch.num_tokens, sequences);
  if (tokens == 0 || tokens > workspace().max_tokens) return {};
  return {tokens, sequences, batch.num_logit_rows > 0 ? sequences : 0};
}

CudaBackend::CapturedStep* CudaBackend::graph_of(const StepArgs& step, const GraphKey& key, SampleMode mode,
                                                 const ForwardPass& forward) {
  const bool has_two_sizes = key.tokens > key.sequences;
  if (has_two_sizes && graphs_.size() >= kMostGraphs && !graphs_.contains(key)) return nullptr;
  const auto [entry, is_new] = graphs_.try_emplace(key);
  if (is_new) return nullptr;
  CapturedStep& captured = entry->second;
  if (captured.graph == nullptr) {
    captured = capture(step, {key.tokens, key.sequences, key.logit_rows}, mode, forward);
  }
  return &captured;
}

CudaBackend::CapturedStep CudaBackend::capture(const StepArgs& step, const LaunchSizes& sizes,
                                               SampleMode mode, const ForwardPass& forward) {
  check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeRelaxed), "capturing a step");
  cudaGraph_t raw_graph = nullptr;
  capturing_ = true;
  try {
    enqueue(step, sizes, mode, forward);
    capturing_ = false;
  } catch (...) {
    capturing_ = false;
    cudaStreamEndCapture(stream_.get(), &raw_graph);
    if (raw_graph != nullptr) cudaGraphDestroy(raw_graph);
    throw;
  }
  check(cudaStreamEndCapture(stream_.get(), &raw_graph), "capturing a step");
  const Graph graph(raw_graph);
  const int64_t free_before = free_and_total_bytes().first;
  cudaGraphExec_t raw_executable = nullptr;
  check(cudaGraphInstantiate(&raw_executable, graph.get(), 0), "instantiating a step's graph");
  GraphExec executable(raw_executable);
  check(cudaGraphUpload(executable.get(), stream_.get()), "instantiating a step's graph");
  MemoryLedger::of_process().grow(free_before - free_and_total_bytes().first, "graphs");
  CapturedStep captured{std::move(executable), {log_.runs(), log_.launches()}};
  for (LaunchLog::OpRun& run : captured.ops.runs)
    run.launched_ns = 0;  // when it was captured
  return captured;
}

void CudaBackend::enqueue(const StepArgs& step, const LaunchSizes& sizes, SampleMode mode,
                          const ForwardPass& forward) {
  Workspace& work = workspace();
  log_.clear();
  num_stamps_ = 0;
  num_routed_ = 0;
  routed_layer_ = -1;
  stamping_ = step.stamps != nullptr;
  const ForwardBatch batch = work.step.device_batch(step.batch, sizes);
  run_op(step.inputs_op, [&](Launch& launch) {
    work.step.launch_inputs(launch, sizes);
    if (batch.num_decode_sequences > 0) work.attention.plan(launch, batch);
  });
  Tensor logits = forward(batch);
  const int32_t num_rows = drawn_rows(step) == 0 ? 0 : sizes.logit_rows;
  for (int32_t first = 0; first < num_rows; first += static_cast<int32_t>(logits.rows)) {
    if (first > 0) logits = step.more_logits(batch, first);
    if (logits.rows < 1) fail("launch_step: no logits for row {} of {}", first, num_rows);
    if (!options_.rank.is_first()) continue;  // it has its part in the logits, and the first rank draws
    run_op(step.sample_op, [&](Launch& launch) {
      work.sample.sample(launch, logits, first, mode, work.step.sampling(), work.sampling_tables.view(),
                         work.step.previous_tokens(), work.step.tokens(), work.step.results());
    });
  }
  if (step.share_op >= 0 && num_rows > 0)
    run_op(step.share_op,
           [&](Launch& launch) { ranks().share_tokens(launch, work.step.tokens(), num_rows); });
  stamping_ends_ = false;  // the step's own end is that of its last op
  run_op(step.results_op, [&](Launch& launch) {
    work.step.launch_results(launch, num_stamps_, step.rows.empty() ? 0 : sizes.logit_rows, num_routed_);
  });
  stamping_ = false;
}

void CudaBackend::finish_step(std::span<SampledToken> out) {
  if (num_finished_ == num_launched_) fail("no step is launched");
  const size_t slot = num_finished_ % kOpenSteps;
  OpenStep& open = steps_[slot];
  if (out.size() != open.num_rows) fail("the step drew {} tokens, not {}", open.num_rows, out.size());
  if (is_alone()) {
    check(cudaEventSynchronize(open.done.get()), "a step");
  } else {
    wait_with_ranks([&open] { return cudaEventQuery(open.done.get()); }, "a step");
  }
  const int64_t waited_until_ns = now_ns();
  ++num_finished_;
  const StepMemory& memory = workspace().step;
  if (open.num_rows > 0) SampleOps::unpack(memory.host_results(slot), out);
  if (open.stamps == nullptr) return;
  open.stamps->waited_until_ns = waited_until_ns;
  clock_.observe(open.launch_ns, memory.stamp_ns(slot, 0), memory.end_ns(slot), waited_until_ns);
  read_stamps(open, slot);
}

void CudaBackend::read_stamps(const OpenStep& step, size_t slot) {
  const StepMemory& memory = workspace().step;
  const auto host_ns = [&](int32_t stamp) { return clock_.host_ns(memory.stamp_ns(slot, stamp)); };
  for (const LaunchLog::OpRun& run : step.ops.runs) {
    step.stamps->add(
        {.op = run.op,
         .begin_ns = run.begin_stamp < 0 ? 0 : host_ns(run.begin_stamp),
         .launched_ns = run.launched_ns,
         .end_ns = run.end_stamp < 0 ? 0 : host_ns(run.end_stamp),
         .num_launches = run.num_launches,
         .experts_read = run.routed_layer < 0 ? -1 : memory.experts_chosen(slot, run.routed_layer)});
    StepStamps::Stamp& stamp = step.stamps->ops.back();
    if (run.arrival_stamp >= 0)
      stamp.waited_ns = StepStamps::waited(host_ns(run.arrival_stamp) - stamp.begin_ns);
  }
  step.stamps->launches.assign(step.ops.launches.begin(), step.ops.launches.end());
  step.stamps->end_ns = clock_.host_ns(memory.end_ns(slot));
  step.stamps->clock_offset_ns = clock_.host_ns(0);
}

void CudaBackend::embed(OpId op, const EmbedArgs& args) {
  run_op(op, [&](Launch& launch) { cuda::embed(launch, args); });
}

bool CudaBackend::takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size) const {
  return options_.activation_dtype == DType::bf16 && cuda::takes_fp8(weights, tokens, head_size, has_wgmma_);
}

bool CudaBackend::takes_norm(std::span<const Weight> weights, int64_t tokens) const {
  return options_.activation_dtype == DType::bf16 && workspace_ != nullptr &&
         workspace_->linear.takes_norm(weights, tokens);
}

void CudaBackend::norm(OpId op, const NormArgs& args) {
  run_op(op, [&](Launch& launch) { cuda::norm(launch, args); });
}

void CudaBackend::activate(OpId op, const ActivateArgs& args) {
  run_op(op, [&](Launch& launch) { cuda::activate(launch, args); });
}

void CudaBackend::linear(OpId op, const LinearArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().linear.linear(launch, args); });
}

void CudaBackend::gate_up_swiglu(OpId op, const GateUpArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().linear.gate_up_swiglu(launch, args); });
}

void CudaBackend::rope_kv_write(OpId op, const ForwardBatch& batch, const RopeKvWriteArgs& args) {
  run_op(op, [&](Launch& launch) { cuda::rope_kv_write(launch, batch, args); });
}

void CudaBackend::latent_kv_write(OpId op, const ForwardBatch& batch, const LatentKvWriteArgs& args) {
  run_op(op, [&](Launch& launch) { cuda::latent_kv_write(launch, batch, args); });
}

void CudaBackend::head_linear(OpId op, const HeadLinearArgs& args) {
  run_op(op, [&](Launch& launch) { cuda::head_product(launch, args); });
}

void CudaBackend::attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().attention.attention(launch, batch, args); });
}

void CudaBackend::note_routed_layer() {
  if (stamping_) log_.runs().back().routed_layer = routed_layer_;
}

void CudaBackend::moe_route(OpId op, const MoeRouteArgs& args) {
  ChosenExperts chosen;
  if (stamping_) {
    if (args.logits.cols > 1)
      chosen = workspace().step.chosen_experts(num_routed_);  // of one there is no choice
    routed_layer_ = chosen.bits != nullptr ? num_routed_++ : -1;
  }
  run_op(op, [&](Launch& launch) { cuda::moe_route(launch, args, chosen); });
}

void CudaBackend::moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) {
  run_op(op, [&](Launch& launch) {
    note_routed_layer();
    workspace().linear.moe_gate_up_swiglu(launch, args);
  });
}

void CudaBackend::moe_down(OpId op, const MoeDownArgs& args) {
  run_op(op, [&](Launch& launch) {
    note_routed_layer();
    workspace().linear.moe_down(launch, args);
  });
}

void CudaBackend::gather_rows(OpId op, const Tensor& x, const int32_t* rows, const Tensor& out) {
  run_op(op, [&](Launch& launch) { cuda::gather_rows(launch, x, rows, out); });
}

void CudaBackend::all_reduce(OpId op, const AllReduceArgs& args) {
  run_op(op, [&](Launch& launch) {
    const int32_t arrival = stamping_ ? num_stamps_++ : -1;
    const bool is_stamped =
        ranks().all_reduce(launch, args, arrival < 0 ? nullptr : workspace().step.stamp(arrival));
    if (is_stamped) log_.runs().back().arrival_stamp = arrival;
  });
}

void CudaBackend::gather_columns(OpId op, const Tensor& part, const Tensor& out) {
  run_op(op, [&](Launch& launch) { ranks().gather_columns(launch, part, out); });
}

}  // namespace minfer::cuda

namespace minfer {

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<cuda::CudaBackend>(options);
}

std::unique_ptr<CounterSampler> make_cuda_counters(const CudaRanks& ranks, Rank rank) {
  return cuda::make_pm_sampler(ranks.device_of(rank));
}

}  // namespace minfer
