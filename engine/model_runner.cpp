#include "engine/model_runner.h"

#include <algorithm>
#include <utility>

#include "kernels/cuda/device/devices.h"
#include "profiling/record/machine.h"

namespace minfer {
namespace {

/// Share of free memory that the KV cache takes when nobody says: the rest is for weights in page cache and
/// other programs.
constexpr double kKvShareOfFreeMemory = 0.25;
/// CUDA graphs are instantiated as they are first needed, and their memory is the driver's.
constexpr int64_t kGraphReserveBytes = int64_t{256} << 20;

void check_option(const char* option, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail("{}: {} is out of range, expected {} to {}", option, value, low, high);
}

int64_t blocks_for(int64_t tokens, int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

void check_options(const EngineOptions& options, const ModelConfig& config) {
  check_option("max-model-len", options.max_model_len, 0, config.context_length);
  check_option("max-num-seqs", options.max_num_seqs, 1, 65536);
  check_option("max-num-batched-tokens", options.max_num_batched_tokens, 1, 1 << 20);
  check_option("block-size", options.block_size, 1, 1024);
  check_option("num-blocks", options.num_blocks, 0, 1 << 24);
  check_option("kv-cache-bytes", options.kv_cache_bytes, 0, int64_t{1} << 50);
  check_option("stream-interval", options.stream_interval, 1, 1 << 20);
  check_option("threads", options.threads, 0, 1024);
  if (!(options.gpu_memory_utilization > 0.0 && options.gpu_memory_utilization <= 1.0)) {
    fail("gpu-memory-utilization: {} is out of range, expected above 0 and at most 1",
         options.gpu_memory_utilization);
  }
}

int32_t longest_sequence(const EngineOptions& options, const ModelConfig& config) {
  return options.max_model_len > 0 ? options.max_model_len : config.context_length;
}

/// Memory that the KV cache may take. On a device everything else has been allocated by now, but for
/// `activation_bytes`.
int64_t kv_budget_bytes(const EngineOptions& options, const Backend& backend, int64_t activation_bytes) {
  if (options.kv_cache_bytes > 0) return options.kv_cache_bytes;
  const std::optional<DeviceMemory> memory = backend.device_memory();
  if (!memory)
    return static_cast<int64_t>(kKvShareOfFreeMemory * static_cast<double>(available_memory_bytes()));
  const auto usable =
      static_cast<int64_t>(options.gpu_memory_utilization * static_cast<double>(memory->total_bytes));
  const int64_t budget =
      usable - (memory->total_bytes - memory->free_bytes) - activation_bytes - kGraphReserveBytes;
  if (budget <= 0) {
    fail(
        "gpu-memory-utilization: {} of {} bytes leaves nothing for the KV cache: {} bytes are taken (by the "
        "weights "
        "and by other programs), {} more are needed for activations: raise it, or free memory",
        options.gpu_memory_utilization, memory->total_bytes, memory->total_bytes - memory->free_bytes,
        activation_bytes + kGraphReserveBytes);
  }
  return budget;
}

void choose_kv_blocks(EngineOptions& options, const ModelConfig& config, DType kv_dtype,
                      int64_t budget_bytes) {
  const auto block_bytes = static_cast<int64_t>(KvCache::block_bytes(config, kv_dtype, options.block_size));
  // More blocks than all seats filled to the end can never be used.
  const int64_t usable =
      blocks_for(longest_sequence(options, config), options.block_size) * options.max_num_seqs;
  if (options.num_blocks == 0) {
    options.num_blocks = static_cast<int32_t>(
        std::clamp<int64_t>(budget_bytes / block_bytes, 1, std::min<int64_t>(usable, 1 << 24)));
  }
  const int64_t capacity = int64_t{options.num_blocks} * options.block_size;
  if (options.max_model_len == 0) {
    options.max_model_len = static_cast<int32_t>(std::min<int64_t>(config.context_length, capacity));
  } else if (options.max_model_len > capacity) {
    fail(
        "max-model-len: {} tokens do not fit into the KV cache of {} blocks of {} tokens ({} bytes a block): "
        "lower it, or "
        "give the cache more memory",
        options.max_model_len, options.num_blocks, options.block_size, block_bytes);
  }
}

}  // namespace

std::unique_ptr<Backend> make_backend(const EngineOptions& options, const ModelSource& source) {
  const bool use_cuda =
      options.device == DeviceChoice::cuda || (options.device == DeviceChoice::automatic && has_usable_gpu());
  if (!use_cuda) {
    if (options.dtype && *options.dtype != DType::f32) {
      fail("dtype: {} is not supported on the CPU backend, expected f32", name(*options.dtype));
    }
    return make_cpu_backend(options.threads);
  }
  const auto is_wide = [](const HostTensor& tensor) { return tensor.rows > 1 && tensor.dtype != DType::f32; };
  const bool all_f32 = std::ranges::none_of(source.tensors(), is_wide);
  const DType dtype = options.dtype.value_or(all_f32 ? DType::f32 : DType::bf16);
  if (dtype != DType::f32 && dtype != DType::bf16) fail("dtype: {}, expected bf16 or f32", name(dtype));
  return make_cuda_backend({.activation_dtype = dtype, .use_graphs = options.cuda_graphs});
}

DType choose_kv_dtype(const EngineOptions& options, const BackendInfo& backend) {
  if (!options.kv_cache_dtype) return backend.activation_dtype;
  const DType dtype = *options.kv_cache_dtype;
  const bool known = dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16 ||
                     (dtype == DType::f8_e4m3 && backend.name == "cuda");
  if (!known) {
    fail("kv-cache-dtype: {} is not supported on the {} backend, expected f32, bf16{} f16", name(dtype),
         backend.name, backend.name == "cuda" ? ", fp8_e4m3 or" : " or");
  }
  return dtype;
}

ModelRunner::ModelRunner(const ModelSource& source, const EngineOptions& options, int32_t logit_slice,
                         const LoadProgress& progress, std::unique_ptr<Backend> backend)
    : options_(options), backend_(std::move(backend)) {
  const ModelConfig& config = source.config();
  check_options(options_, config);
  if (!backend_) backend_ = make_backend(options_, source);
  const BackendInfo info = backend_->info();
  options_.threads = info.threads;
  const int32_t usual_steps_ahead = info.asynchronous ? info.steps_ahead : 0;
  options_.steps_ahead = std::clamp(options_.steps_ahead.value_or(usual_steps_ahead), 0, info.steps_ahead);
  const DType kv_dtype = choose_kv_dtype(options_, info);
  options_.kv_cache_dtype = kv_dtype;

  ModelWeights weights = load_weights(source, *backend_, progress);
  streamed_weight_bytes_ = weights.streamed_bytes;
  DecoderLimits limits{.max_tokens = options_.max_num_batched_tokens,
                       .logit_slice = logit_slice,
                       .max_positions = longest_sequence(options_, config)};
  backend_->prepare(
      Decoder::step_limits(config, limits, std::min(options_.max_num_seqs, options_.max_num_batched_tokens),
                           static_cast<int32_t>(blocks_for(limits.max_positions, options_.block_size))));
  choose_kv_blocks(
      options_, config, kv_dtype,
      kv_budget_bytes(options_, *backend_, Decoder::workspace_bytes(config, info.activation_dtype, limits)));
  kv_ = std::make_unique<KvCache>(*backend_, config, kv_dtype, options_.num_blocks, options_.block_size);
  limits.max_positions = options_.max_model_len;
  decoder_ = std::make_unique<Decoder>(config, std::move(weights), *backend_, *kv_, limits);
  backend_->name_ops(decoder_->ops());
}

LogitRows ModelRunner::logits(const ForwardBatch& batch) {
  Tensor logits;
  backend_->launch_step({.batch = batch}, [&](const ForwardBatch& device_batch) {
    logits = decoder_->forward(device_batch);
    return logits;
  });
  backend_->finish_step({});
  if (logits.rows != batch.num_logit_rows) {
    fail("{} rows of logits, expected at most {}", batch.num_logit_rows, logits.rows);
  }
  host_logits_.resize(static_cast<size_t>(logits.rows * logits.cols));
  backend_->copy_to_host(host_logits_.data(), logits.data, host_logits_.size() * sizeof(float));
  return {host_logits_, logits.cols};
}

}  // namespace minfer
