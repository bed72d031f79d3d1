#include "models/decoder/weights/shard.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <string_view>

#include <fmt/ranges.h>

namespace minfer {
namespace {

/// How a tensor is divided among the ranks. Of a delta net: by key heads, with the value heads that go with them. Of Mamba-2 likewise, by groups.
enum class Split : uint8_t {
  none,
  rows,
  vocabulary,  ///< rows; the last rank may have fewer
  kv_rows,
  columns,
  matrices,
  delta_channels,  ///< rows of q, k and v
  delta_values,    ///< rows of v
  delta_value_columns,
  delta_heads,   ///< a row a value head
  delta_alphas,  ///< a row, or as many as a state of Kimi delta attention has
  delta_pairs,   ///< two rows
  mamba_in,      ///< rows of z, x, B, C and dt
  thirds,        ///< rows of each third
};

struct SplitTensor {
  std::string_view suffix;  ///< of the tensor's name; without its end: of weight and bias
  Split split;
};

constexpr std::array kSplits{
    SplitTensor{"token_embd.weight", Split::vocabulary},
    SplitTensor{"attn_q", Split::rows},
    SplitTensor{"attn_q_norm.weight", Split::rows},
    SplitTensor{"attn_k_norm.weight", Split::kv_rows},
    SplitTensor{"attn_k", Split::kv_rows},
    SplitTensor{"attn_v", Split::kv_rows},
    SplitTensor{"attn_output.weight", Split::columns},
    SplitTensor{"ffn_gate", Split::rows},
    SplitTensor{"ffn_up", Split::rows},
    SplitTensor{"ffn_down.weight", Split::columns},
    SplitTensor{"ffn_gate_exps.weight", Split::rows},
    SplitTensor{"ffn_up_exps.weight", Split::rows},
    SplitTensor{"ffn_down_exps.weight", Split::columns},
    SplitTensor{"ffn_gate_exps.bias", Split::columns},
    SplitTensor{"ffn_up_exps.bias", Split::columns},
    SplitTensor{"ffn_gate_shexp.weight", Split::rows},
    SplitTensor{"ffn_up_shexp.weight", Split::rows},
    SplitTensor{"ffn_down_shexp.weight", Split::columns},
    SplitTensor{"attn_sinks.weight", Split::rows},
    SplitTensor{"attn_q_b.weight", Split::rows},
    SplitTensor{"attn_k_b.weight", Split::matrices},
    SplitTensor{"attn_v_b.weight", Split::matrices},
    SplitTensor{"attn_qkv.weight", Split::delta_channels},
    SplitTensor{"attn_gate.weight", Split::delta_values},
    SplitTensor{"ssm_conv1d", Split::delta_channels},
    SplitTensor{"ssm_in.weight", Split::mamba_in},
    SplitTensor{"ssm_norm.weight", Split::rows},
    SplitTensor{"ssm_d", Split::delta_heads},
    SplitTensor{"ssm_alpha.weight", Split::delta_heads},
    SplitTensor{"ssm_beta.weight", Split::delta_heads},
    SplitTensor{"ssm_f_b.weight", Split::rows},
    SplitTensor{"ssm_g_b.weight", Split::rows},
    SplitTensor{"ssm_ba.weight", Split::delta_pairs},
    SplitTensor{"ssm_dt.bias", Split::delta_alphas},
    SplitTensor{"ssm_a", Split::delta_heads},
    SplitTensor{"ssm_out.weight", Split::delta_value_columns},
    SplitTensor{"shortconv.in_proj", Split::thirds},
    SplitTensor{"shortconv.conv", Split::rows},
    SplitTensor{"shortconv.out_proj.weight", Split::columns},
};

/// The split of a tensor such as "blk.3.attn_q.weight" or "output.weight".
Split split_of(std::string_view tensor) {
  if (tensor == "output.weight" || tensor == kSuppressedTokens) return Split::vocabulary;
  tensor = part_of_tensor(tensor);
  const std::string_view stem = tensor.substr(0, tensor.rfind('.'));
  for (const SplitTensor& entry : kSplits) {
    if (tensor == entry.suffix || stem == entry.suffix) return entry.split;
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

bool divides_vocabulary(int32_t tokens, int32_t ranks) {
  return int64_t{share_of_vocabulary(tokens, ranks)} * (ranks - 1) < tokens;
}

std::array<Divided, 7> divided_sizes(const ModelConfig& config, int32_t ranks) {
  const int32_t few_tokens = divides_vocabulary(config.vocab_size, ranks) ? 0 : config.vocab_size;
  int32_t ffn_size = config.ffn_size;
  for (const LayerConfig& layer : config.layers)
    if (layer.ffn_size % ranks != 0) ffn_size = layer.ffn_size;
  return {{{"attention heads", config.num_heads},
           {"columns of the feed-forward layers", ffn_size},
           {"columns of an expert", config.expert_ffn_size},
           {"columns of the shared experts", config.shared_ffn_size},
           {config.architecture.has_mamba ? "groups of Mamba-2" : "key heads of the delta nets",
            config.delta_net.key_heads},
           {"channels of the short convolutions", config.conv_channels},
           {"tokens of the vocabulary", few_tokens}}};
}

bool divides(const ModelConfig& config, int32_t ranks) {
  return std::ranges::all_of(kinds_of_kv_heads(config),
                             [&](int32_t kv_heads) { return divides_kv_heads(kv_heads, ranks); }) &&
         std::ranges::all_of(divided_sizes(config, ranks),
                             [&](const Divided& divided) { return divided.size % ranks == 0; });
}

std::vector<int32_t> possible_ranks(const ModelConfig& config) {
  std::vector<int32_t> possible;
  for (int32_t ranks = 1; ranks <= config.num_heads; ++ranks) {
    if (divides(config, ranks)) possible.push_back(ranks);
  }
  return possible;
}

HostTensor with_strides(HostTensor tensor) {
  tensor.row_stride = tensor.stride_of_rows();
  tensor.matrix_stride = tensor.stride_of_matrices();
  return tensor;
}

/// Rows [first, first + count) of every matrix.
HostTensor rows_of(const HostTensor& whole, int64_t first, int64_t count) {
  HostTensor tensor = with_strides(whole);
  if (tensor.data != nullptr) tensor.data = tensor.row(0, first);
  tensor.rows = count;
  return tensor;
}

/// Columns [first, first + count) of every row; both whole blocks.
HostTensor columns_of(const HostTensor& whole, int64_t first, int64_t count) {
  HostTensor tensor = with_strides(whole);
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

/// Rows or columns [first, first + count).
struct HeadRange {
  int64_t first;
  int64_t count;
};

/// A rank's part of a tensor. What is not in one piece in the model's memory is put together in `gathered`.
class Slicer {
 public:
  Slicer(const ModelSource& model, Rank rank, std::vector<std::vector<std::byte>>& gathered)
      : model_(model), rank_(rank), gathered_(gathered) {}

  HostTensor operator()(const HostTensor& tensor) const {
    const DeltaNetShape& shape = model_.config().delta_net;
    const int32_t tokens = model_.config().vocab_size, share = share_of_vocabulary(tokens, rank_.count);
    const int32_t first_token = rank_.index * share;
    // One weight of norms for all heads is whole on every rank.
    if (tensor.rows == 1 && tensor.name.ends_with("_norm.weight")) return tensor;
    switch (split_of(tensor.name)) {
      case Split::vocabulary:
        return rows(tensor, tokens, {{first_token, std::min(share, tokens - first_token)}});
      case Split::rows:
        return part(tensor, rank_.index, rank_.count);
      case Split::kv_rows: {
        if (model_.config().is_delta_net(layer_of_tensor(tensor.name)))
          return part(tensor, rank_.index, rank_.count);
        const int32_t parts =
            std::min(rank_.count, model_.config().heads(layer_of_tensor(tensor.name)).kv_heads);
        return part(tensor, rank_.index * parts / rank_.count, parts);
      }
      case Split::columns:
        return columns(tensor);
      case Split::matrices:
        return heads(tensor);
      case Split::delta_channels:
        return rows(tensor, shape.channels(), delta_channels());
      case Split::delta_values:
        return rows(tensor, shape.value_columns(), delta_values(shape.value_size));
      case Split::delta_heads:
        return rows(tensor, shape.value_heads, delta_values(1));
      case Split::delta_alphas:
        return rows(tensor, shape.alphas(), delta_values(shape.alphas() / shape.value_heads));
      case Split::delta_pairs:
        return rows(tensor, 2 * int64_t{shape.value_heads}, delta_values(2));
      case Split::mamba_in: {
        std::vector<HeadRange> ranges = delta_values(shape.value_size);
        for (const HeadRange& range : delta_channels())
          ranges.push_back({shape.value_columns() + range.first, range.count});
        for (const HeadRange& range : delta_values(1))
          ranges.push_back({shape.value_columns() + shape.channels() + range.first, range.count});
        return rows(tensor, shape.value_columns() + shape.channels() + shape.value_heads, ranges);
      }
      case Split::delta_value_columns:
        return columns(tensor, shape.value_columns(), delta_values(shape.value_size));
      case Split::thirds: {
        const int64_t third = model_.config().conv_channels, own = third / rank_.count,
                      first = rank_.index * own;
        return rows(tensor, 3 * third, {{first, own}, {third + first, own}, {2 * third + first, own}});
      }
      case Split::none:
        break;
    }
    return tensor;
  }

 private:
  /// The value heads that go with a rank's key heads of a delta net, as rows or columns: side by side, or some of each turn.
  std::vector<HeadRange> delta_values(int64_t size) const {
    const DeltaNetShape& shape = model_.config().delta_net;
    const int32_t turns = shape.in_turn ? shape.values_of_key() : 1;
    const int64_t of_turn = shape.value_heads / turns * size, own = of_turn / rank_.count;
    std::vector<HeadRange> ranges;
    for (int32_t turn = 0; turn < turns; ++turn)
      ranges.push_back({turn * of_turn + rank_.index * own, own});
    return ranges;
  }

  /// The ranges of q, k and v; of Mamba-2 those of x, B and C.
  std::vector<HeadRange> delta_channels() const {
    const DeltaNetShape& shape = model_.config().delta_net;
    const int64_t keys = shape.key_columns(), own = keys / rank_.count;
    if (model_.config().architecture.has_mamba) {
      std::vector<HeadRange> ranges = delta_values(shape.value_size);
      for (int64_t part = 0; part < 2; ++part)
        ranges.push_back({shape.value_columns() + part * keys + rank_.index * own, own});
      return ranges;
    }
    std::vector<HeadRange> ranges{{rank_.index * own, own}, {keys + rank_.index * own, own}};
    for (const HeadRange& range : delta_values(shape.value_size))
      ranges.push_back({2 * keys + range.first, range.count});
    return ranges;
  }

  /// Matrices of heads, which a file may have as rows of one if there is a single head.
  HostTensor heads(const HostTensor& tensor) const {
    if (tensor.count % rank_.count != 0) return tensor;
    const int64_t count = tensor.count / rank_.count;
    return matrices_of(tensor, rank_.index * count, count);
  }

  /// A tensor that does not divide has another shape than the configuration says. It stays whole, and load_weights() refuses it.
  HostTensor part(const HostTensor& tensor, int32_t index, int32_t parts) const {
    const int64_t all = is_vector(tensor) ? tensor.cols : tensor.rows;
    return all % parts == 0 ? rows(tensor, all, {{index * (all / parts), all / parts}}) : tensor;
  }

  HostTensor columns(const HostTensor& tensor) const {
    if (tensor.cols % rank_.count != 0) return tensor;
    const int64_t count = tensor.cols / rank_.count;
    return columns(tensor, tensor.cols, {{rank_.index * count, count}});
  }

  static bool is_vector(const HostTensor& tensor) { return tensor.rows == 1 && tensor.count == 1; }

  /// Rows of a matrix, elements of a vector, of `all`; of another number the tensor is left whole, as in part().
  HostTensor rows(const HostTensor& tensor, int64_t all, const std::vector<HeadRange>& ranges) const {
    if (is_vector(tensor) && all > 1) return columns(tensor, all, ranges);
    if ((tensor.count != 1 && ranges.size() > 1) || tensor.rows != all) return tensor;
    if (ranges.size() == 1) return rows_of(tensor, ranges.front().first, ranges.front().count);
    HostTensor own = tensor;
    own.rows = total(ranges);
    own.row_stride = own.matrix_stride = 0;
    if (tensor.data == nullptr) return own;
    const size_t of_row = row_bytes(tensor.dtype, tensor.cols);
    std::byte* to = room_for(own);
    for (const HeadRange& range : ranges) {
      for (int64_t row = range.first; row < range.first + range.count; ++row, to += of_row)
        std::memcpy(to, tensor.row(0, row), of_row);
    }
    return own;
  }

  HostTensor columns(const HostTensor& tensor, int64_t all, const std::vector<HeadRange>& ranges) const {
    if ((tensor.count != 1 && ranges.size() > 1) || tensor.cols != all) return tensor;
    refuse_parts_of_blocks(tensor, ranges.front().count, total(ranges));
    if (ranges.size() == 1) return columns_of(tensor, ranges.front().first, ranges.front().count);
    HostTensor own = tensor;
    own.cols = total(ranges);
    own.row_stride = own.matrix_stride = 0;
    if (tensor.data == nullptr) return own;
    std::byte* to = room_for(own);
    for (int64_t row = 0; row < tensor.rows; ++row) {
      for (const HeadRange& range : ranges) {
        const size_t bytes = row_bytes(tensor.dtype, range.count);
        std::memcpy(to, tensor.row(0, row) + row_bytes(tensor.dtype, range.first), bytes);
        to += bytes;
      }
    }
    return own;
  }

  static int64_t total(const std::vector<HeadRange>& ranges) {
    int64_t count = 0;
    for (const HeadRange& range : ranges)
      count += range.count;
    return count;
  }

  std::byte* room_for(HostTensor& tensor) const {
    gathered_.emplace_back(tensor.bytes());
    tensor.data = gathered_.back().data();
    return gathered_.back().data();
  }

  /// `own`: a rank's columns, in pieces of `piece`.
  void refuse_parts_of_blocks(const HostTensor& tensor, int64_t piece, int64_t own) const {
    if (piece % traits(tensor.dtype).block_elements == 0) return;
    fail<FileError>(
        "{}: tensor {}: {} columns among {} ranks are {} each{}, expected whole blocks of {} elements of {}: "
        "use fewer ranks "
        "(--tensor-parallel-size), or a file with smaller blocks (q8_0, bf16)",
        model_.name(), tensor.name, tensor.cols, rank_.count, own,
        piece == own ? "" : fmt::format(" in pieces of {}", piece), traits(tensor.dtype).block_elements,
        minfer::name(tensor.dtype));
  }

  const ModelSource& model_;
  Rank rank_;
  std::vector<std::vector<std::byte>>& gathered_;
};

}  // namespace

ModelConfig shard_config(const ModelConfig& whole, Rank rank) {
  if (whole.architecture.qk_norm == QkNorm::row && !rank.is_alone()) {
    fail(
        "tensor-parallel-size: {}, expected 1 for model {}: architecture {} normalises queries and keys over "
        "all heads, but a rank has only some",
        rank.count, whole.name, whole.architecture.name);
  }
  const auto cut =
      std::ranges::find_if(whole.layers, [](const LayerConfig& of) { return of.gate_cut.has_value(); });
  if (cut != whole.layers.end() && !rank.is_alone()) {
    fail(
        "tensor-parallel-size: {}, expected 1 for model {}: layer {} cuts its gates by the mean and "
        "deviation of all "
        "({}.activation_sparsity_scale), but a rank has only some",
        rank.count, whole.name, cut - whole.layers.begin(), whole.architecture.name);
  }
  for (const Divided& divided : divided_sizes(whole, rank.count)) {
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
  config.whole_vocab = whole.vocab_size;
  config.num_heads /= rank.count;
  config.num_kv_heads = std::max(1, config.num_kv_heads / rank.count);
  for (LayerConfig& layer : config.layers) {
    if (layer.heads) layer.heads->kv_heads = std::max(1, layer.heads->kv_heads / rank.count);
    layer.ffn_size /= rank.count;
  }
  config.ffn_size /= rank.count;
  config.expert_ffn_size /= rank.count;
  config.shared_ffn_size /= rank.count;
  config.delta_net.key_heads /= rank.count;
  config.delta_net.value_heads /= rank.count;
  config.conv_channels /= rank.count;
  const int32_t share = share_of_vocabulary(whole.vocab_size, rank.count);
  config.vocab_size = std::min(share, whole.vocab_size - rank.index * share);
  return config;
}

ModelShard::ModelShard(const ModelSource& model, Rank rank, Contents contents)
    : ModelSource(model.name(), shard_config(model.config(), rank), model.chat_template()), model_(model) {
  const Slicer slice(model, rank, gathered_);
  for (HostTensor tensor : model.tensors()) {
    if (contents == Contents::shapes) tensor.data = nullptr;
    add_tensor(slice(tensor));
  }
}

void ModelShard::release_data() {
  for (HostTensor& tensor : tensors_) {
    if (std::ranges::any_of(gathered_, [&](const auto& bytes) { return bytes.data() == tensor.data; }))
      tensor.data = nullptr;
  }
  gathered_.clear();
}

}  // namespace minfer
