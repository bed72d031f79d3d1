#include "engine/model_runner.h"

#include <algorithm>

#include "profiling/machine.h"

namespace minfer {
namespace {

/// Share of free memory that the KV cache takes when nobody says: the rest is for weights in page cache and
/// other programs.
constexpr double kKvShareOfFreeMemory = 0.25;

void check_range(const char* option, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail("{}: {} is out of range, expected {} to {}", option, value, low, high);
}

int64_t blocks_for(int64_t tokens, int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

void choose_kv_blocks(EngineOptions& options, const ModelConfig& config, int64_t free_memory_bytes) {
  const auto block_bytes =
      static_cast<int64_t>(KvCache::block_bytes(config, options.kv_cache_dtype, options.block_size));
  const int64_t longest = options.max_model_len > 0 ? options.max_model_len : config.context_length;
  // More blocks than all seats filled to the end can never be used.
  const int64_t usable = blocks_for(longest, options.block_size) * options.max_num_seqs;
  if (options.num_blocks == 0) {
    const int64_t budget =
        options.kv_cache_bytes > 0
            ? options.kv_cache_bytes
            : static_cast<int64_t>(kKvShareOfFreeMemory * static_cast<double>(free_memory_bytes));
    options.num_blocks = static_cast<int32_t>(
        std::clamp<int64_t>(budget / block_bytes, 1, std::min<int64_t>(usable, 1 << 24)));
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

EngineOptions choose_options(const EngineOptions& given, const ModelConfig& config,
                             int64_t free_memory_bytes) {
  EngineOptions options = given;
  check_range("max-model-len", options.max_model_len, 0, config.context_length);
  check_range("max-num-seqs", options.max_num_seqs, 1, 65536);
  check_range("max-num-batched-tokens", options.max_num_batched_tokens, 1, 1 << 20);
  check_range("block-size", options.block_size, 1, 1024);
  check_range("num-blocks", options.num_blocks, 0, 1 << 24);
  check_range("kv-cache-bytes", options.kv_cache_bytes, 0, int64_t{1} << 50);
  check_range("stream-interval", options.stream_interval, 1, 1 << 20);
  check_range("threads", options.threads, 0, 1024);
  if (options.kv_cache_dtype != DType::f32 && options.kv_cache_dtype != DType::bf16 &&
      options.kv_cache_dtype != DType::f16) {
    fail("kv-cache-dtype: {} is not supported on the CPU backend, expected f32, bf16 or f16",
         name(options.kv_cache_dtype));
  }
  choose_kv_blocks(options, config, free_memory_bytes);
  return options;
}

ModelRunner::ModelRunner(const ModelSource& source, const EngineOptions& options, int32_t max_logit_rows,
                         const LoadProgress& progress)
    : options_(choose_options(options, source.config(), static_cast<int64_t>(available_memory_bytes()))),
      backend_(make_cpu_backend(options_.threads)) {
  options_.threads = backend_->info().threads;
  ModelWeights weights = load_weights(source, *backend_, progress);
  streamed_weight_bytes_ = weights.streamed_bytes;
  kv_ = std::make_unique<KvCache>(*backend_, source.config(), options_.kv_cache_dtype, options_.num_blocks,
                                  options_.block_size);
  decoder_ = std::make_unique<Decoder>(source.config(), std::move(weights), *backend_, *kv_,
                                       DecoderLimits{.max_tokens = options_.max_num_batched_tokens,
                                                     .max_logit_rows = max_logit_rows,
                                                     .max_positions = options_.max_model_len});
}

}  // namespace minfer
