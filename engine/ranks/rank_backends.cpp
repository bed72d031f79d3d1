#include "engine/ranks/rank_backends.h"

#include <algorithm>
#include <utility>

#include "kernels/base/thread_pool.h"
#include "kernels/comm/process_group.h"
#include "kernels/cuda/device/devices.h"

namespace minfer {
namespace {

constexpr std::chrono::seconds kGpuPatience{5};
constexpr std::chrono::seconds kCpuPatience{60};

/// The type of activations on a GPU: bf16, unless all weights are f32 and stay so.
DType gpu_activation_dtype(const EngineOptions& options, const ModelSource& source) {
  const auto is_wide = [](const HostTensor& tensor) { return tensor.rows > 1 && tensor.dtype != DType::f32; };
  const bool all_f32 = std::ranges::none_of(source.tensors(), is_wide);
  const DType dtype = options.dtype.value_or(all_f32 && !options.quantization ? DType::f32 : DType::bf16);
  if (dtype != DType::f32 && dtype != DType::bf16) fail("dtype: {}, expected bf16 or f32", name(dtype));
  return dtype;
}

/// The threads of one rank. Those asked for, or the machine's, serve all ranks of a process; processes on the same cores share them.
int32_t cpu_threads(const EngineOptions& options) {
  if (options.processes) {
    if (options.threads > 0) return options.threads;
    return std::max(1, num_cores() / options.processes->num_on_same_cores());
  }
  if (options.tensor_parallel_size == 1) return options.threads;
  const int32_t all = options.threads > 0 ? options.threads : num_cores();
  return std::max(1, all / options.tensor_parallel_size);
}

}  // namespace

bool uses_cuda(const EngineOptions& options) {
  return options.device == DeviceChoice::cuda ||
         (options.device == DeviceChoice::automatic && has_usable_gpu());
}

std::chrono::milliseconds rank_patience(const EngineOptions& options) {
  if (options.rank_timeout_s > 0) return std::chrono::seconds(options.rank_timeout_s);
  return uses_cuda(options) ? kGpuPatience : kCpuPatience;
}

RankBackends::RankBackends(const EngineOptions& options, const ModelSource& source,
                           std::shared_ptr<RankFailure> failure)
    : options_(options) {
  const int32_t count = options.tensor_parallel_size;
  if (uses_cuda(options)) {
    activation_dtype_ = gpu_activation_dtype(options, source);
    if (count == 1) return;
    cuda_ranks_ = make_cuda_ranks({.count = count,
                                   .processes = options.processes,
                                   .all_reduce = options.all_reduce,
                                   .failure = std::move(failure),
                                   .patience = rank_patience(options)});
    return;
  }
  if (options.dtype && *options.dtype != DType::f32) {
    fail("dtype: {} is not supported on the CPU backend, expected f32", name(*options.dtype));
  }
  if (options.all_reduce != AllReduceChoice::automatic) {
    fail("all-reduce: CPUs have one way to add up, expected auto; peer and nccl are for GPUs");
  }
  if (count > 1 && !options.processes)
    communicators_ = make_thread_communicators(count, std::move(failure), rank_patience(options));
}

void RankBackends::end_in_order() {
  if (cuda_ranks_) minfer::end_in_order(*cuda_ranks_);
}

std::unique_ptr<CounterSampler> RankBackends::make_counters(int32_t rank) const {
  return cuda_ranks_ ? make_cuda_counters(*cuda_ranks_, {rank, options_.tensor_parallel_size}) : nullptr;
}

std::unique_ptr<Backend> RankBackends::make(int32_t rank) {
  const int32_t count = options_.tensor_parallel_size;
  if (uses_cuda(options_)) {
    return make_cuda_backend({.activation_dtype = activation_dtype_,
                              .use_graphs = options_.cuda_graphs,
                              .rank = {rank, count},
                              .ranks = cuda_ranks_});
  }
  if (options_.processes) {
    return make_cpu_backend(cpu_threads(options_),
                            make_process_communicator(options_.processes, rank_patience(options_)));
  }
  return make_cpu_backend(cpu_threads(options_),
                          count > 1 ? std::move(communicators_[static_cast<size_t>(rank)]) : nullptr);
}

}  // namespace minfer
