#include "engine/ranks/memory_fit.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include <fmt/ranges.h>

#include "engine/ranks/sizes.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "models/decoder/kv_cache.h"
#include "models/decoder/weights/quantise.h"
#include "models/decoder/weights/shard.h"

namespace minfer {
namespace {

constexpr int32_t kMostGpus = 64;

/// Types that people offer whole files of and that a GPU keeps as they are, the largest first.
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

int64_t bytes_of_block(const ModelConfig& config, const EngineOptions& options, DType kv_dtype) {
  return static_cast<int64_t>(KvCache::block_bytes(config, options.kv_layout.value_or(KvLayout{}), kv_dtype,
                                                   options.block_size)) +
         options.draft_block_bytes;
}

int64_t least_blocks(const EngineOptions& options) {
  if (options.num_blocks > 0) return options.num_blocks;
  return std::max<int64_t>(1, kv_block_sizes(options).blocks_for(options.max_model_len));
}

class Search {
 public:
  Search(const ModelSource& source, const EngineOptions& options, const MemoryRoom& room)
      : source_(source), options_(options), room_(room) {}

  /// False too where a model cannot be divided so, or quantised.
  bool fits(const Variant& variant) const {
    try {
      if (variant.times_gpus == 1) return fits(source_, variant);
      return fits(ModelShard(source_, {0, variant.times_gpus}, ModelShard::Contents::shapes), variant);
    } catch (const Error&) {
      return false;
    }
  }

  /// Tokens for which there is room beside the weights.
  int64_t fitting_tokens(const Variant& variant) const {
    const int64_t left = room_.usable_bytes - room_.other_bytes - weight_bytes(source_, variant);
    return kv_block_sizes(options_).most_tokens(std::max<int64_t>(0, left) /
                                                bytes_of_block(source_.config(), options_, variant.kv_dtype));
  }

  std::optional<int32_t> fewest_gpus(Variant variant) const {
    for (variant.times_gpus = 2; variant.times_gpus * options_.tensor_parallel_size <= kMostGpus;
         ++variant.times_gpus) {
      if (fits(variant)) return variant.times_gpus * options_.tensor_parallel_size;
    }
    return std::nullopt;
  }

 private:
  bool fits(const ModelSource& share, const Variant& variant) const {
    return room_.other_bytes + weight_bytes(share, variant) +
               least_blocks(options_) * bytes_of_block(share.config(), options_, variant.kv_dtype) <=
           room_.usable_bytes;
  }

  const ModelSource& source_;
  const EngineOptions& options_;
  const MemoryRoom& room_;
};

}  // namespace

int64_t gpu_weight_bytes(const ModelSource& source, const EngineOptions& options) {
  return weight_bytes(source, {.quantization = options.quantization});
}

std::string what_would_fit(const ModelSource& source, const EngineOptions& options, const MemoryRoom& room) {
  constexpr std::string_view kFp8Cache = "--kv-cache-dtype fp8", kFp8Weights = "--quantization fp8";
  const Search search(source, options, room);
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
  if (takes_fp8_cache && search.fits(small_cache)) ways.emplace_back(kFp8Cache);
  if (search.fits(small_weights)) ways.emplace_back(kFp8Weights);
  if (ways.empty() && takes_fp8_cache && search.fits(both))
    ways.push_back(fmt::format("{} with {}", kFp8Weights, kFp8Cache));
  if (const int64_t tokens = search.fitting_tokens(now);
      options.num_blocks == 0 && options.max_model_len > tokens && tokens > 0)
    ways.push_back(fmt::format("--max-model-len {}", tokens));
  const auto file = std::ranges::find_if(kFileTypes, [&](DType type) {
    Variant variant = now;
    variant.file_type = type;
    return search.fits(variant);
  });
  if (file != kFileTypes.end()) ways.push_back(fmt::format("a file of {}", name(*file)));
  if (const auto gpus = search.fewest_gpus(now)) {
    ways.push_back(fmt::format("--tensor-parallel-size {}", *gpus));
  } else if (const auto with_both = search.fewest_gpus(both); takes_fp8_cache && with_both) {
    ways.push_back(
        fmt::format("--tensor-parallel-size {} with {} and {}", *with_both, kFp8Weights, kFp8Cache));
  }
  if (ways.empty()) return fmt::format("nothing would fit, up to {} such GPUs", kMostGpus);
  return fmt::format("what would fit: {}", fmt::join(ways, ", or "));
}

}  // namespace minfer
