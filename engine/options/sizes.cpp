#include "engine/options/sizes.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/ranges.h>

#include "kernels/cuda/weights/weight_layout.h"
#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/memory/recurrent_state_pool.h"
#include "models/decoder/weights/quantise.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

/// Copies of states take 1 / kCacheShares of the cache's bytes, unless a number is asked for.
constexpr int64_t kCacheShares = 4;
constexpr int64_t kMostUsualCopies = 1024;

void check_option(const char* option, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    fail("{}: {} is out of range, expected {} to {}", option, value, low, high);
}

std::vector<DType> offered_kv_dtypes(const ModelConfig& config, const BackendInfo& backend) {
  if (backend.name != "cuda") return {DType::f32, DType::bf16, DType::f16};
  // Tensor cores multiply bf16 queries with these types; for the others there are only kernels that read a key anew for each query head.
  if (backend.activation_dtype == DType::f32) return {DType::f32};
  if (config.is_latent()) return {DType::bf16, DType::f16};
  return {DType::bf16, DType::f16, DType::f8_e4m3};
}

void check_target_itl(const EngineOptions& options) {
  constexpr double kMostMs = 3'600'000.0;
  const std::optional<double> target_ms = options.target_itl_ms;
  if (target_ms && !(*target_ms >= 0.0 && *target_ms <= kMostMs))
    fail("target-itl-ms: {} is out of range, expected 0 to {:.0f}", *target_ms, kMostMs);
  if (target_ms != 0.0 && !options.enable_chunked_prefill) {
    fail("target-itl-ms: {} with chunked prefill off, expected 0: prompts are not cut into pieces",
         target_ms ? fmt::format("{}", *target_ms) : "auto");
  }
}

void check_speculation(const EngineOptions& all, const ModelConfig& config) {
  const SpeculationOptions& options = all.speculation;
  if (options.method == SpeculationMethod::mtp) {
    if (!config.has_draft_layer)
      fail(
          "speculative mtp: {} has no layer for further tokens (nextn_predict_layers) of a kind that is "
          "supported",
          config.name);
    if (all.tensor_parallel_size > 1 || all.processes)
      fail(
          "speculative: a layer for drafts works with one rank only, found several; --speculative ngram "
          "works with any number");
  }
  check_option("num-speculative-tokens", options.num_tokens, 1, kMostDraftTokens);
  check_option("ngram-prompt-lookup-max", options.ngram_max, 1, kLongestNgram);
  check_option("ngram-prompt-lookup-min", options.ngram_min, 1, options.ngram_max);
}

constexpr int32_t kMostGpus = 64;

/// Types that whole files are offered in and that a GPU keeps as they are, the largest first.
constexpr std::array kFileTypes{DType::q8_0, DType::q6_k, DType::q5_k, DType::q4_k, DType::q3_k, DType::q2_k};

/// How a model could be run.
struct Variant {
  int32_t times_gpus = 1;
  std::optional<DType> quantization = {};
  DType kv_dtype = DType::bf16;
  std::optional<DType> file_type = {};  ///< absent: the file as it is
};

double bits_of(DType dtype) {
  return 8.0 * traits(dtype).block_bytes / traits(dtype).block_elements;
}

/// A matrix as a file of `type` would have it, unless it is smaller already. Routers of experts stay as they are.
HostTensor as_in_file_of(HostTensor tensor, DType type) {
  const bool is_matrix = tensor.rows > 1 && !tensor.name.ends_with("ffn_gate_inp.weight");
  const bool is_larger = bits_of(tensor.dtype) > bits_of(type);
  if (is_matrix && is_larger && tensor.cols % traits(type).block_elements == 0) tensor.dtype = type;
  return tensor;
}

int64_t weight_bytes(const ModelSource& source, const Variant& variant) {
  int64_t bytes = 0;
  for (HostTensor tensor : source.tensors()) {
    if (variant.file_type) tensor = as_in_file_of(tensor, *variant.file_type);
    bytes += static_cast<int64_t>(cuda::reserved_bytes(to_load(tensor, variant.quantization, source.name())));
  }
  return bytes;
}

int64_t least_blocks(const EngineOptions& options) {
  if (options.num_blocks > 0) return options.num_blocks;
  return std::max<int64_t>(1, kv_block_sizes(options).blocks_for(options.max_model_len));
}

/// True if a share of a model fits beside a cache of the least size.
bool fits(const ModelSource& share, const EngineOptions& options, const MemoryRoom& room,
          const Variant& variant) {
  const int64_t block_bytes =
      kv_block_bytes(share.config(), options, variant.kv_dtype) + options.draft_block_bytes;
  return room.other_bytes + weight_bytes(share, variant) + least_blocks(options) * block_bytes <=
         room.usable_bytes;
}

}  // namespace

int64_t kv_block_bytes(const ModelConfig& config, const EngineOptions& options, DType dtype) {
  return static_cast<int64_t>(
      KvCache::block_bytes(config, options.kv_layout.value_or(KvLayout{}), dtype, options.block_size));
}

int64_t state_slot_bytes(const ModelConfig& config) {
  return static_cast<int64_t>(RecurrentStatePool::slot_bytes(config));
}

int64_t blocks_for(int64_t tokens, int32_t block_size) {
  return (tokens + block_size - 1) / block_size;
}

int64_t most_tokens_under_way(const EngineOptions& options) {
  return int64_t{options.max_num_batched_tokens} * (options.steps_ahead.value_or(0) + 1);
}

KvBlockSizes kv_block_sizes(const EngineOptions& options) {
  const KvLayout layout = options.kv_layout.value_or(KvLayout{});
  return {.block_size = layout.parts * options.block_size,
          .window_block_size = layout.has_window_table ? options.block_size : 0,
          .most_window_tokens = layout.window + most_tokens_under_way(options)};
}

int64_t kv_cache_tokens(const EngineOptions& options) {
  const KvBlockSizes sizes = kv_block_sizes(options);
  if (sizes.window_block_size == 0) return int64_t{options.num_blocks} * sizes.block_size;
  return options.num_blocks * int64_t{options.max_model_len} / sizes.blocks_for(options.max_model_len);
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
  check_option("tensor-parallel-size", options.tensor_parallel_size, 1, 64);
  check_option("rank-timeout", options.rank_timeout_s, 0, 86400);
  if (options.tensor_parallel_size == 1 && !options.processes) {
    constexpr std::string_view kNoOthers =
        "has no effect with one rank, expected only with --tensor-parallel-size";
    if (options.all_reduce != AllReduceChoice::automatic) fail("all-reduce: {}", kNoOthers);
    if (options.rank_timeout_s > 0) fail("rank-timeout: {}", kNoOthers);
  }
  if (!options.kv_disk.folder.empty()) {
    if (options.tensor_parallel_size > 1 || options.processes)
      fail("kv-cache-dir: {} ranks share the model, expected one", options.tensor_parallel_size);
    if (config.is_recurrent())
      fail("kv-cache-dir: {} has states of sequences, which are not kept on disk", config.name);
  }
  check_speculation(options, config);
  check_option("num-state-copies", options.num_state_copies.value_or(0), 0, 1 << 20);
  if (options.num_state_copies.value_or(0) > 0) {
    if (!config.is_recurrent()) {
      fail("num-state-copies: {}, but {} has no layers with states of sequences: expected 0",
           *options.num_state_copies, config.name);
    }
    if (!options.enable_prefix_caching || !options.enable_chunked_prefill)
      fail("num-state-copies: {} without prefix caching and chunked prefill, expected 0",
           *options.num_state_copies);
  }
  if (options.quantization && std::ranges::count(kQuantizations, *options.quantization) == 0)
    fail("quantization: {}, expected fp8", name(*options.quantization));
  check_target_itl(options);
  if (!(options.gpu_memory_utilization > 0.0 && options.gpu_memory_utilization <= 1.0)) {
    fail("gpu-memory-utilization: {} is out of range, expected above 0 and at most 1",
         options.gpu_memory_utilization);
  }
}

int32_t longest_sequence(const EngineOptions& options, const ModelConfig& config) {
  return options.max_model_len > 0 ? options.max_model_len : config.context_length;
}

DType choose_kv_dtype(const EngineOptions& options, const ModelConfig& config, const BackendInfo& backend) {
  if (!options.kv_cache_dtype) return backend.activation_dtype;
  const DType dtype = *options.kv_cache_dtype;
  const std::vector<DType> offered = offered_kv_dtypes(config, backend);
  if (std::ranges::find(offered, dtype) == offered.end()) {
    std::vector<std::string_view> names;
    for (const DType type : offered)
      names.push_back(name(type));
    fail("kv-cache-dtype: {} is not offered for {} on the {} backend with activations in {}, expected {}",
         name(dtype), config.name, backend.name, name(backend.activation_dtype), fmt::join(names, " or "));
  }
  return dtype;
}

KvLayout usual_kv_layout(const EngineOptions& options, const ModelConfig& config) {
  return KvLayout::of(config, longest_sequence(options, config), options.block_size);
}

void choose_for_backend(EngineOptions& options, const ModelConfig& config, const BackendInfo& backend) {
  options.threads = backend.threads;
  const int32_t usual_steps_ahead = backend.asynchronous ? backend.steps_ahead : 0;
  options.steps_ahead = std::clamp(options.steps_ahead.value_or(usual_steps_ahead), 0, backend.steps_ahead);
  options.kv_cache_dtype = choose_kv_dtype(options, config, backend);
  options.is_recurrent = config.is_recurrent();
  if (config.is_recurrent() || config.has_draft_layer)
    options.num_state_slots = std::min(options.max_num_seqs, options.max_num_batched_tokens);
  if (!options.kv_layout) {
    options.kv_layout = usual_kv_layout(options, config);
    // A draft model keeps keys of its own in all blocks of the table.
    if (options.draft_block_bytes > 0 && !options.kv_layout->has_window_table) options.kv_layout->window = 0;
  }
  if (!config.is_recurrent() || !options.enable_prefix_caching) {
    options.num_state_copies = 0;
  } else if (!options.enable_chunked_prefill || options.kv_layout->has_window_table) {
    options.enable_prefix_caching = false;
    options.num_state_copies = 0;
  }
}

void choose_state_copies(EngineOptions& options, const ModelConfig& config, const CacheRoom& room) {
  if (options.num_state_copies == 0) {
    if (config.is_recurrent()) options.enable_prefix_caching = false;
    return;
  }
  const int64_t slot_bytes = state_slot_bytes(config);
  const int64_t block_bytes = kv_block_bytes(config, options, options.kv_cache_dtype.value());
  const bool has_blocks = options.num_blocks > 0;
  if (options.num_state_copies) {
    const int64_t left =
        has_blocks ? room.memory_bytes - options.num_blocks * block_bytes : room.cache_bytes - block_bytes;
    const int64_t most = std::max<int64_t>(0, left / slot_bytes);
    if (*options.num_state_copies > most) {
      fail(
          "num-state-copies: {} copies take {} bytes, {} each, and {} bytes are left for them beside {}: "
          "lower it to {}",
          *options.num_state_copies, *options.num_state_copies * slot_bytes, slot_bytes,
          std::max<int64_t>(0, left),
          has_blocks ? fmt::format("{} KV blocks", options.num_blocks) : "a KV block", most);
    }
    return;
  }
  const KvBlockSizes sizes = kv_block_sizes(options);
  const int64_t usable = sizes.blocks_for(longest_sequence(options, config)) * options.max_num_seqs;
  const int64_t cache_bytes = has_blocks ? options.num_blocks * block_bytes : room.cache_bytes;
  const int64_t tokens = std::min(usable, cache_bytes / block_bytes) * sizes.block_size;
  // A sequence as long as was asked for comes first.
  const int64_t longest_bytes =
      !has_blocks && options.max_model_len > 0 ? sizes.blocks_for(options.max_model_len) * block_bytes : 0;
  const int64_t copy_bytes = std::clamp<int64_t>(cache_bytes - longest_bytes, 0, cache_bytes / kCacheShares);
  const int64_t most =
      std::min({copy_bytes / slot_bytes, tokens / options.state_copy_rule.least_tokens, kMostUsualCopies});
  limit_state_copies(options, most);
}

void limit_state_copies(EngineOptions& options, int64_t most) {
  options.num_state_copies = static_cast<int32_t>(most);
  if (most == 0) options.enable_prefix_caching = false;
}

void settle_state_before_drafts(EngineOptions& options, const ModelConfig& config) {
  if (!config.is_recurrent() || options.speculation.method == SpeculationMethod::off) return;
  if (options.num_state_copies.value_or(0) == 0) {
    if (!options.speculation.is_asked_for) {
      options.speculation.method = SpeculationMethod::off;
      return;
    }
    fail(
        "speculative: {} has layers with states of sequences, and drafts need copies of the states before "
        "them, but none are kept: expected off, or prefix caching with --num-state-copies of at least 1",
        config.name);
  }
}

void choose_kv_blocks(EngineOptions& options, const ModelConfig& config, int64_t most_blocks) {
  // All slots filled to the end use at most this many blocks.
  const KvBlockSizes sizes = kv_block_sizes(options);
  const int64_t usable = sizes.blocks_for(longest_sequence(options, config)) * options.max_num_seqs;
  const bool is_given = options.num_blocks > 0;
  if (!is_given) {
    options.num_blocks =
        static_cast<int32_t>(std::clamp<int64_t>(most_blocks, 1, std::min<int64_t>(usable, 1 << 24)));
  }
  const int64_t capacity = sizes.most_tokens(options.num_blocks);
  if (options.max_model_len == 0) {
    options.max_model_len = static_cast<int32_t>(std::min<int64_t>(config.context_length, capacity));
  } else if (options.max_model_len > capacity) {
    const DType kv_dtype = options.kv_cache_dtype.value();
    const int64_t block_bytes = kv_block_bytes(config, options, kv_dtype);
    const int64_t fp8_blocks =
        options.num_blocks * block_bytes / kv_block_bytes(config, options, DType::f8_e4m3);
    const bool fits_in_fp8 =
        !is_given && !config.is_latent() && sizes.most_tokens(fp8_blocks) >= options.max_model_len;
    fail(
        "max-model-len: {} tokens do not fit into the KV cache of {} blocks of {} tokens ({} bytes a block "
        "of {}): lower it to {}, or give the cache more memory{}",
        options.max_model_len, options.num_blocks, sizes.block_size, block_bytes, name(kv_dtype), capacity,
        fits_in_fp8 ? "; on a GPU they would fit with --kv-cache-dtype fp8" : "");
  }
}

int64_t gpu_weight_bytes(const ModelSource& source, const EngineOptions& options) {
  return weight_bytes(source, {.quantization = options.quantization});
}

std::string what_would_fit(const ModelSource& source, const EngineOptions& options, const MemoryRoom& room) {
  constexpr std::string_view kFp8Cache = "--kv-cache-dtype fp8", kFp8Weights = "--quantization fp8";
  // False also if a model cannot be divided so, or quantised.
  const auto would_fit = [&](const Variant& variant) {
    try {
      if (variant.times_gpus == 1) return fits(source, options, room, variant);
      return fits(ModelShard(source, {0, variant.times_gpus}, ModelShard::Contents::shapes), options, room,
                  variant);
    } catch (const Error&) {
      return false;
    }
  };
  const auto fewest_gpus = [&](Variant variant) -> std::optional<int32_t> {
    const int32_t ranks = options.tensor_parallel_size;
    for (variant.times_gpus = 2; variant.times_gpus * ranks <= kMostGpus; ++variant.times_gpus) {
      if (would_fit(variant)) return variant.times_gpus * ranks;
    }
    return std::nullopt;
  };
  const Variant now{.quantization = options.quantization,
                    .kv_dtype = options.kv_cache_dtype.value_or(DType::bf16)};
  // As offered_kv_dtypes() has it.
  const bool takes_fp8_cache = !source.config().is_latent() && now.kv_dtype != DType::f32;
  Variant small_cache = now, small_weights = now;
  small_cache.kv_dtype = DType::f8_e4m3;
  small_weights.quantization = DType::fp8;
  Variant both = small_weights;
  both.kv_dtype = DType::f8_e4m3;

  std::vector<std::string> ways;
  if (takes_fp8_cache && would_fit(small_cache)) ways.emplace_back(kFp8Cache);
  if (would_fit(small_weights)) ways.emplace_back(kFp8Weights);
  if (ways.empty() && takes_fp8_cache && would_fit(both))
    ways.push_back(fmt::format("{} with {}", kFp8Weights, kFp8Cache));
  // Tokens for which there is room beside the weights.
  const int64_t left = room.usable_bytes - room.other_bytes - weight_bytes(source, now);
  const int64_t blocks = std::max<int64_t>(0, left) /
                         (kv_block_bytes(source.config(), options, now.kv_dtype) + options.draft_block_bytes);
  if (const int64_t tokens = kv_block_sizes(options).most_tokens(blocks);
      options.num_blocks == 0 && options.max_model_len > tokens && tokens > 0)
    ways.push_back(fmt::format("--max-model-len {}", tokens));
  const auto file = std::ranges::find_if(kFileTypes, [&](DType type) {
    Variant variant = now;
    variant.file_type = type;
    return would_fit(variant);
  });
  if (file != kFileTypes.end()) ways.push_back(fmt::format("a file of {}", name(*file)));
  if (const auto gpus = fewest_gpus(now)) {
    ways.push_back(fmt::format("--tensor-parallel-size {}", *gpus));
  } else if (const auto with_both = fewest_gpus(both); takes_fp8_cache && with_both) {
    ways.push_back(
        fmt::format("--tensor-parallel-size {} with {} and {}", *with_both, kFp8Weights, kFp8Cache));
  }
  if (ways.empty()) return fmt::format("nothing would fit, up to {} such GPUs", kMostGpus);
  return fmt::format("what would fit: {}", fmt::join(ways, ", or "));
}

}  // namespace minfer
