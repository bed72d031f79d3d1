#include "models/decoder/shard.h"

#include <array>
#include <numeric>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

namespace minfer {
namespace {

/// How a tensor is divided among the ranks.
enum class Split : uint8_t { none, rows, kv_rows, columns, matrices };

struct SplitTensor {
  std::string_view suffix;  ///< of the tensor's name
  Split split;
};

constexpr std::array kSplits{
    SplitTensor{"token_embd.weight", Split::rows},
    SplitTensor{"attn_q.weight", Split::rows},
    SplitTensor{"attn_q.bias", Split::rows},
    SplitTensor{"attn_k.weight", Split::kv_rows},
    SplitTensor{"attn_k.bias", Split::kv_rows},
    SplitTensor{"attn_v.weight", Split::kv_rows},
    SplitTensor{"attn_v.bias", Split::kv_rows},
    SplitTensor{"attn_output.weight", Split::columns},
    SplitTensor{"ffn_gate.weight", Split::rows},
    SplitTensor{"ffn_up.weight", Split::rows},
    SplitTensor{"ffn_down.weight", Split::columns},
    SplitTensor{"ffn_gate_exps.weight", Split::rows},
    SplitTensor{"ffn_up_exps.weight", Split::rows},
    SplitTensor{"ffn_down_exps.weight", Split::columns},
    SplitTensor{"ffn_gate.bias", Split::rows},
    SplitTensor{"ffn_up.bias", Split::rows},
    SplitTensor{"ffn_gate_exps.bias", Split::columns},
    SplitTensor{"ffn_up_exps.bias", Split::columns},
    SplitTensor{"ffn_gate_shexp.weight", Split::rows},
    SplitTensor{"ffn_up_shexp.weight", Split::rows},
    SplitTensor{"ffn_down_shexp.weight", Split::columns},
    SplitTensor{"attn_sinks.weight", Split::rows},
    SplitTensor{"attn_q_b.weight", Split::rows},
    SplitTensor{"attn_k_b.weight", Split::matrices},
    SplitTensor{"attn_v_b.weight", Split::matrices},
};

/// Of "blk.3.attn_q.weight" or "output.weight".
Split split_of(std::string_view tensor) {
  if (tensor == "output.weight") return Split::rows;
  const size_t part = tensor.find('.', tensor.starts_with("blk.") ? 4 : tensor.size());
  if (part != std::string_view::npos) tensor.remove_prefix(part + 1);
  for (const SplitTensor& entry : kSplits) {
    if (tensor == entry.suffix) return entry.split;
  }
  return Split::none;
}

/// Something of a model that is divided among ranks.
struct Divided {
  std::string_view what;
  int32_t size;
};

/// Numbers of KV heads that layers have.
std::set<int32_t> kinds_of_kv_heads(const ModelConfig& config) {
  std::set<int32_t> kinds;
  if (config.layers.empty()) kinds.insert(config.num_kv_heads);
  for (int32_t layer = 0; layer < std::ssize(config.layers); ++layer)
    kinds.insert(config.heads(layer).kv_heads);
  return kinds;
}

bool divides_kv_heads(int32_t kv_heads, int32_t ranks) {
  return kv_heads % ranks == 0 || ranks % kv_heads == 0;
}

bool divides(const ModelConfig& config, int32_t ranks) {
  const bool kv = std::ranges::all_of(
      kinds_of_kv_heads(config), [ranks](int32_t kv_heads) { return divides_kv_heads(kv_heads, ranks); });
  return kv && config.num_heads % ranks == 0 && config.ffn_size % ranks == 0 &&
         config.expert_ffn_size % ranks == 0 && config.shared_ffn_size % ranks == 0 &&
         config.vocab_size % ranks == 0;
}

std::vector<int32_t> possible_ranks(const ModelConfig& config) {
  std::vector<int32_t> possible;
  for (int32_t ranks = 1; ranks <= config.num_heads; ++ranks) {
    if (divides(config, ranks)) possible.push_back(ranks);
  }
  return possible;
}

/// Rows [first, first + count) of every matrix.
HostTensor rows_of(HostTensor tensor, int64_t first, int64_t count) {
  tensor.row_stride = tensor.stride_of_rows();
  tensor.matrix_stride = tensor.stride_of_matrices();
  if (tensor.data != nullptr) tensor.data = tensor.row(0, first);
  tensor.rows = count;
  return tensor;
}

/// Columns [first, first + count) of every row; both whole blocks.
HostTensor columns_of(HostTensor tensor, int64_t first, int64_t count) {
  tensor.row_stride = tensor.stride_of_rows();
  tensor.matrix_stride = tensor.stride_of_matrices();
  if (tensor.data != nullptr)
    tensor.data = static_cast<const std::byte*>(tensor.data) + row_bytes(tensor.dtype, first);
  tensor.cols = count;
  return tensor;
}

/// Matrices [first, first + count).
HostTensor matrices_of(HostTensor tensor, int64_t first, int64_t count) {
  if (tensor.data != nullptr) tensor.data = tensor.row(first, 0);
  tensor.count = count;
  return tensor;
}

/// A rank's part of a tensor.
class Slicer {
 public:
  Slicer(const ModelSource& model, Rank rank) : model_(model), rank_(rank) {}

  HostTensor operator()(const HostTensor& tensor) const {
    switch (split_of(tensor.name)) {
      case Split::rows:
        return part(tensor, rank_.index, rank_.count);
      case Split::kv_rows: {
        const int32_t parts =
            std::min(rank_.count, model_.config().heads(layer_of_tensor(tensor.name)).kv_heads);
        return part(tensor, rank_.index * parts / rank_.count, parts);
      }
      case Split::columns:
        return columns(tensor);
      case Split::matrices:
        return heads(tensor);
      case Split::none:
        break;
    }
    return tensor;
  }

 private:
  /// Matrices of heads, which a file may have as rows of one if there is a single head.
  HostTensor heads(const HostTensor& tensor) const {
    if (tensor.count % rank_.count != 0) return tensor;
    const int64_t count = tensor.count / rank_.count;
    return matrices_of(tensor, rank_.index * count, count);
  }

  /// Rows of a matrix, elements of a vector. What does not divide has another shape than the configuration says: it is left whole
  /// for load_weights() to refuse.
  HostTensor part(const HostTensor& tensor, int32_t index, int32_t parts) const {
    if (tensor.rows == 1 && tensor.count == 1) {
      if (tensor.cols % parts != 0) return tensor;
      const int64_t count = tensor.cols / parts;
      return whole_blocks(tensor, count) ? columns_of(tensor, index * count, count) : tensor;
    }
    if (tensor.rows % parts != 0) return tensor;
    const int64_t count = tensor.rows / parts;
    return rows_of(tensor, index * count, count);
  }

  HostTensor columns(const HostTensor& tensor) const {
    if (tensor.cols % rank_.count != 0) return tensor;
    const int64_t count = tensor.cols / rank_.count;
    if (!whole_blocks(tensor, count)) {
      fail<FileError>(
          "{}: tensor {}: {} columns among {} ranks are {} each, expected whole blocks of {} elements of {}: "
          "use fewer ranks "
          "(--tensor-parallel-size), or a file with smaller blocks (q8_0, bf16)",
          model_.name(), tensor.name, tensor.cols, rank_.count, count, traits(tensor.dtype).block_elements,
          minfer::name(tensor.dtype));
    }
    return columns_of(tensor, rank_.index * count, count);
  }

  static bool whole_blocks(const HostTensor& tensor, int64_t columns) {
    return columns % traits(tensor.dtype).block_elements == 0;
  }

  const ModelSource& model_;
  Rank rank_;
};

}  // namespace

ModelConfig shard_config(const ModelConfig& whole, Rank rank) {
  if (whole.architecture.qk_norm == QkNorm::row && !rank.is_alone()) {
    fail(
        "tensor-parallel-size: {}, expected 1 of model {}: architecture {} normalises queries and keys over "
        "all "
        "heads, of which a rank has some",
        rank.count, whole.name, whole.architecture.name);
  }
  if (whole.has_states() && !rank.is_alone()) {
    fail("tensor-parallel-size: {}, expected 1 of model {}: gated delta nets are not divided among ranks",
         rank.count, whole.name);
  }
  for (const Divided& divided : {Divided{"attention heads", whole.num_heads},
                                 Divided{"columns of the feed-forward layers", whole.ffn_size},
                                 Divided{"columns of an expert", whole.expert_ffn_size},
                                 Divided{"columns of the shared experts", whole.shared_ffn_size},
                                 Divided{"tokens of the vocabulary", whole.vocab_size}}) {
    if (divided.size % rank.count != 0) {
      fail(
          "tensor-parallel-size: {} of model {} are {}, not a multiple of {}; numbers of ranks that divide "
          "it: {}",
          divided.what, whole.name, divided.size, rank.count, fmt::join(possible_ranks(whole), ", "));
    }
  }
  for (const int32_t kv_heads : kinds_of_kv_heads(whole)) {
    if (divides_kv_heads(kv_heads, rank.count)) continue;
    fail(
        "tensor-parallel-size: {} KV heads of model {} and {} ranks do not divide each other; numbers of "
        "ranks that divide it: {}",
        kv_heads, whole.name, rank.count, fmt::join(possible_ranks(whole), ", "));
  }
  ModelConfig config = whole;
  config.rank = rank;
  config.num_heads /= rank.count;
  config.num_kv_heads = std::max(1, config.num_kv_heads / rank.count);
  for (LayerConfig& layer : config.layers) {
    if (layer.heads) layer.heads->kv_heads = std::max(1, layer.heads->kv_heads / rank.count);
  }
  config.ffn_size /= rank.count;
  config.expert_ffn_size /= rank.count;
  config.shared_ffn_size /= rank.count;
  config.vocab_size /= rank.count;
  return config;
}

ModelShard::ModelShard(const ModelSource& model, Rank rank)
    : model_(model), config_(shard_config(model.config(), rank)) {
  const Slicer slice(model, rank);
  for (const HostTensor& tensor : model.tensors()) {
    index_[tensor.name] = tensors_.size();
    tensors_.push_back(slice(tensor));
  }
}

const HostTensor* ModelShard::find_tensor(std::string_view tensor_name) const {
  const auto found = index_.find(std::string(tensor_name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace minfer
