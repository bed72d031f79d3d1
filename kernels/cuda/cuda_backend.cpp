#include "kernels/cuda/cuda_backend.h"

#include <algorithm>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/memory_ledger.h"
#include "kernels/cuda/moe/moe_route.h"

namespace minfer::cuda {
namespace {

int32_t device_index(const CudaOptions& options) {
  return options.ranks != nullptr ? options.ranks->device_of(options.rank) : options.rank.index;
}

/// The build option with which the backend would run on the device; empty if no build would.
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

/// Ranks that draw no tokens need almost no memory for it.
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
      linear(num_sms, limits),
      moe(device_facts(num_sms), limits),
      attention(num_sms, limits),
      choice(limits),
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
      facts_(device_facts(device_.multiprocessors)),
      stream_(make_stream()),
      clock_(stream_.get()),
      log_(device_.sm, device_.major >= 9) {
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
    synchronize();  // no memory may be freed that a step still uses
  } catch (const std::exception&) {
    cudaStreamSynchronize(stream_.get());  // a rank has failed: kernels that waited for it end by themselves
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
          .device_id = device_.id,
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

void CudaBackend::copy_on_device(void* to, const void* from, size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()), "copying on the device");
}

Buffer CudaBackend::allocate_host(size_t bytes, std::string_view what) {
  PinnedBuffer buffer(bytes, what);
  return Buffer(buffer.release(), bytes, [](void* data) { FreePinned()(data); });
}

void CudaBackend::copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t row_bytes,
                            size_t rows) {
  if (std::max(to_pitch, from_pitch) > INT32_MAX)  // beyond CUDA's limit
    return Backend::copy_rows(to, to_pitch, from, from_pitch, row_bytes, rows);
  check(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, row_bytes, rows, cudaMemcpyDefault, stream_.get()),
        "copying rows");
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

bool CudaBackend::takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size) const {
  return options_.activation_dtype == DType::bf16 && cuda::takes_fp8(weights, tokens, head_size, facts_);
}

bool CudaBackend::takes_norm(std::span<const Weight> weights, int64_t tokens) const {
  return options_.activation_dtype == DType::bf16 && cuda::takes_norm(weights, tokens, facts_);
}

void CudaBackend::linear(OpId op, const LinearArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().linear.linear(launch, args); });
}

void CudaBackend::gate_up_swiglu(OpId op, const GateUpArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().linear.gate_up_swiglu(launch, args); });
}

void CudaBackend::attention(OpId op, const ForwardBatch& batch, const AttentionArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().attention.attention(launch, batch, args); });
}

void CudaBackend::choose_keys(OpId op, const ForwardBatch& batch, const ChooseKeysArgs& args) {
  run_op(op, [&](Launch& launch) { workspace().choice.choose(launch, batch, args); });
}

void CudaBackend::note_routed_layer() {
  if (stamping_) log_.runs().back().routed_layer = routed_layer_;
}

void CudaBackend::moe_route(OpId op, const MoeRouteArgs& args) {
  ChosenExperts chosen;
  if (stamping_) {
    if (args.logits.cols > 1)
      chosen = workspace().step.chosen_experts(num_routed_);  // one expert leaves no choice
    routed_layer_ = chosen.bits != nullptr ? num_routed_++ : -1;
  }
  run_op(op, [&](Launch& launch) { cuda::moe_route(launch, args, chosen); });
}

void CudaBackend::moe_gate_up_swiglu(OpId op, const MoeGateUpArgs& args) {
  run_op(op, [&](Launch& launch) {
    note_routed_layer();
    workspace().moe.gate_up_swiglu(launch, args);
  });
}

void CudaBackend::moe_down(OpId op, const MoeDownArgs& args) {
  run_op(op, [&](Launch& launch) {
    note_routed_layer();
    workspace().moe.down(launch, args);
  });
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
