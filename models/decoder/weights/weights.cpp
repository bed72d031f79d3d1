#include "models/decoder/weights/weights.h"

#include <cmath>
#include <unordered_set>

#include <fmt/ranges.h>

#include "kernels/cpu/lanes/isa.h"
#include "kernels/cpu/product/linear.h"
#include "models/decoder/weights/quantise.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// The shape a tensor must have, and the metadata keys (without the architecture) that say so; "": none does.
struct Expected {
  int64_t rows;
  int64_t cols;
  std::string_view rows_from = "";
  std::string_view cols_from = "";
  int64_t count = 1;
  std::string_view count_from = "expert_count";

  std::vector<int64_t> shape() const {
    return HostTensor{.name = {}, .count = count, .rows = rows, .cols = cols}.shape();
  }

  /// The key of the first dimension that `tensor` has otherwise.
  std::string_view key_of_difference(const HostTensor& tensor) const {
    if (tensor.count != count) return count_from;
    return tensor.rows != rows ? rows_from : cols_from;
  }
};

/// The name of a tensor of one layer.
std::string in(int32_t layer, std::string_view part) {
  return fmt::format("blk.{}.{}", layer, part);
}

/// Takes tensors from the source one by one, checks them and remembers which were used.
class Loader {
 public:
  Loader(const ModelSource& source, Target& target, const LoadProgress& progress,
         std::optional<DType> quantization)
      : source_(source),
        config_(source.config()),
        target_(target),
        progress_(progress),
        quantization_(quantization) {}

  ModelWeights load() {
    check_shapes(source_, target_.shape_limits(), target_.info().name);
    target_.reserve_weights(tensors_to_load(source_.tensors(), quantization_, source_.name()));
    weights_.embedding = matrix("token_embd.weight",
                                {config_.vocab_size, config_.hidden_size, "vocab_size", "embedding_length"});
    const std::string output_norm(config_.architecture.output_norm_tensor);
    weights_.output_norm = norm(output_norm);
    weights_.output_norm_bias = norm_bias(output_norm);
    weights_.output = source_.find_tensor("output.weight") != nullptr
                          ? matrix("output.weight", {config_.vocab_size, config_.hidden_size, "vocab_size",
                                                     "embedding_length"})
                          : weights_.embedding;
    weights_.rope_frequency_factors = rope_factors("rope_freqs.weight");
    weights_.rope_short_factors = rope_factors("rope_factors_short.weight");
    weights_.rope_long_factors = rope_factors("rope_factors_long.weight");
    for (int32_t layer = 0; layer < config_.num_layers; ++layer)
      weights_.layers.push_back(load_layer(layer));
    refuse_unused_tensors();
    source_.check_intact();
    weights_.streamed_bytes += static_cast<int64_t>(weights_.output.matrix_bytes());
    return std::move(weights_);
  }

 private:
  const HostTensor& checked(const std::string& tensor_name, const Expected& expected) {
    const HostTensor* tensor = source_.find_tensor(tensor_name);
    if (tensor == nullptr) fail<FileError>("{}: tensor {} is missing", source_.name(), tensor_name);
    if (tensor->shape() != expected.shape()) {
      const std::string_view key = expected.key_of_difference(*tensor);
      fail<FileError>("{}: tensor {}: shape {}, expected {}{}", source_.name(), tensor_name, tensor->shape(),
                      expected.shape(),
                      key.empty() ? "" : fmt::format(" from {}.{}", config_.architecture.name, key));
    }
    used_.insert(tensor_name);
    if (progress_) progress_(used_.size(), source_.tensors().size());
    return *tensor;
  }

  Weight matrix(const std::string& tensor_name, const Expected& expected) {
    return target_.load(to_load(checked(tensor_name, expected), quantization_, source_.name()));
  }

  /// A matrix of a layer: streamed once a step.
  Weight streamed(const std::string& tensor_name, const Expected& expected) {
    const Weight weight = matrix(tensor_name, expected);
    weights_.streamed_bytes += static_cast<int64_t>(weight.matrix_bytes()) * weight.count;
    return weight;
  }

  /// Norms and biases are f32 for the kernels; files may hold them in another plain type.
  Weight vector(const std::string& tensor_name, int64_t size, std::string_view from) {
    return widened(tensor_name, {1, size, "", from});
  }

  /// The same for each expert; null if the file has none.
  Weight expert_bias(const std::string& tensor_name, int64_t size, std::string_view from) {
    return has(tensor_name) ? widened(tensor_name, {config_.num_experts, size, "expert_count", from})
                            : Weight{};
  }

  Weight widened(const std::string& tensor_name, const Expected& expected) {
    const HostTensor& tensor = checked(tensor_name, expected);
    return target_.load(tensor.dtype == DType::f32 ? tensor : in_f32(tensor));
  }

  /// A copy that lives as long as the weights.
  HostTensor in_f32(HostTensor tensor) {
    std::vector<float>& values =
        weights_.converted.emplace_back(static_cast<size_t>(tensor.rows * tensor.cols));
    for (int64_t row = 0; row < tensor.rows; ++row)
      cpu::dequantise_row(tensor.row(0, row), tensor.dtype, tensor.cols, cpu::selected_isa(),
                          values.data() + row * tensor.cols);
    tensor.data = values.data();
    tensor.dtype = DType::f32;
    tensor.row_stride = tensor.matrix_stride = 0;
    return tensor;
  }

  /// f32, with rows as columns.
  Weight transposed(const std::string& tensor_name, const Expected& expected) {
    HostTensor tensor = in_f32(checked(tensor_name, expected));
    std::vector<float>& values = weights_.converted.back();
    const std::vector<float> rows = values;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t row = i / static_cast<size_t>(tensor.cols), col = i % static_cast<size_t>(tensor.cols);
      values[col * static_cast<size_t>(tensor.rows) + row] = rows[i];
    }
    std::swap(tensor.rows, tensor.cols);
    return target_.load(tensor);
  }

  bool has(const std::string& tensor_name) const { return source_.find_tensor(tensor_name) != nullptr; }

  Weight norm(const std::string& tensor_name) {
    return vector(tensor_name + ".weight", config_.hidden_size, "embedding_length");
  }

  /// Null where the file has none: an RMS norm never has one.
  Weight norm_bias(const std::string& tensor_name) {
    if (config_.architecture.norm != NormKind::layer || !has(tensor_name + ".bias")) return {};
    return vector(tensor_name + ".bias", config_.hidden_size, "embedding_length");
  }

  /// The bias of a product that is split by rows; null if the file has none.
  Weight bias(const std::string& tensor_name, int64_t size, std::string_view from) {
    return has(tensor_name) ? vector(tensor_name, size, from) : Weight{};
  }

  /// The bias of a product whose parts are summed over ranks; only the first rank has it.
  Weight bias_of_sum(const std::string& tensor_name) {
    const Weight found = bias(tensor_name, config_.hidden_size, "embedding_length");
    return config_.rank.is_first() ? found : Weight{};
  }

  LayerWeights load_layer(int32_t layer) {
    const Architecture& architecture = config_.architecture;
    const bool before = architecture.norm_placement != NormPlacement::after;
    const bool after = architecture.norm_placement != NormPlacement::before;
    LayerWeights w;
    if (before) {
      w.attn_norm = norm(in(layer, "attn_norm"));
      w.attn_norm_bias = norm_bias(in(layer, "attn_norm"));
    }
    if (config_.is_delta_net(layer)) load_delta_net(layer, w);
    if (config_.is_short_conv(layer)) load_short_conv(layer, w);
    if (config_.attends(layer)) load_attention(layer, w);
    if (after) w.attn_post_norm = norm(in(layer, "post_attention_norm"));
    if (before && !config_.parallel_blocks) {
      w.ffn_norm = norm(in(layer, architecture.ffn_norm_tensor));
      w.ffn_norm_bias = norm_bias(in(layer, architecture.ffn_norm_tensor));
    }
    config_.layer(layer).has_experts ? load_experts(layer, w) : load_ffn(layer, w);
    if (after) w.ffn_post_norm = norm(in(layer, "post_ffw_norm"));
    if (architecture.scales_layers && has(in(layer, "layer_output_scale.weight")))
      w.output_scale = number(in(layer, "layer_output_scale.weight"));
    return w;
  }

  void load_attention(int32_t layer, LayerWeights& w) {
    config_.is_latent() ? load_latent(layer, w) : load_qkv(layer, w);
    if (config_.architecture.attn_sinks)
      w.sinks = vector(in(layer, "attn_sinks.weight"), config_.num_heads, "attention.head_count");
    w.attn_output = streamed(
        in(layer, "attn_output.weight"),
        {config_.hidden_size, config_.output_size(layer), "embedding_length", "attention.head_count"});
    w.attn_output_bias = bias_of_sum(in(layer, "attn_output.bias"));
  }

  void load_delta_net(int32_t layer, LayerWeights& w) {
    const DeltaNetShape& shape = config_.delta_net;
    refuse_older_layout(
        in(layer, "ssm_in.weight"), in(layer, "attn_qkv.weight"),
        "queries, keys, values and gates of each head in one tensor, the layout of Qwen3-Next "
        "files of 2025");
    constexpr std::string_view kInner = "ssm.inner_size", kHeads = "ssm.time_step_rank",
                               kHidden = "embedding_length", kConv = "ssm.conv_kernel";
    const int64_t hidden = config_.hidden_size, values = shape.value_columns();
    w.delta.qkv = streamed(in(layer, "attn_qkv.weight"), {shape.channels(), hidden, kInner, kHidden});
    w.delta.z = streamed(in(layer, "attn_gate.weight"), {values, hidden, kInner, kHidden});
    if (config_.architecture.values_in_turn) {
      w.delta.beta = streamed(in(layer, "ssm_beta.weight"), {shape.value_heads, hidden, kHeads, kHidden});
      w.delta.alpha = streamed(in(layer, "ssm_alpha.weight"), {shape.value_heads, hidden, kHeads, kHidden});
    } else {
      w.delta.beta =
          streamed(in(layer, "ssm_ba.weight"), {2 * int64_t{shape.value_heads}, hidden, kHeads, kHidden});
    }
    w.delta.conv =
        transposed(in(layer, "ssm_conv1d.weight"), {shape.channels(), shape.conv_size, kInner, kConv});
    w.delta.dt_bias = vector(in(layer, "ssm_dt.bias"), shape.value_heads, kHeads);
    w.delta.decay = vector(in(layer, "ssm_a"), shape.value_heads, kHeads);
    w.delta.norm = vector(in(layer, "ssm_norm.weight"), shape.value_size, kInner);
    w.attn_output = streamed(in(layer, "ssm_out.weight"), {hidden, values, kHidden, kInner});
  }

  void load_short_conv(int32_t layer, LayerWeights& w) {
    constexpr std::string_view kHidden = "embedding_length";
    const int64_t hidden = config_.hidden_size, channels = config_.conv_channels;
    w.short_conv = {
        .in = streamed(in(layer, "shortconv.in_proj.weight"), {3 * channels, hidden, kHidden, kHidden}),
        .in_bias = bias(in(layer, "shortconv.in_proj.bias"), 3 * channels, kHidden),
        .conv = transposed(in(layer, "shortconv.conv.weight"),
                           {channels, config_.conv_size, kHidden, "shortconv.l_cache"}),
        .bias = bias(in(layer, "shortconv.conv.bias"), channels, kHidden)};
    w.attn_output = streamed(in(layer, "shortconv.out_proj.weight"), {hidden, channels, kHidden, kHidden});
    w.attn_output_bias = bias_of_sum(in(layer, "shortconv.out_proj.bias"));
  }

  void load_qkv(int32_t layer, LayerWeights& w) {
    const int64_t hidden = config_.hidden_size, q_size = config_.gated_q_size(layer),
                  kv_size = config_.kv_size(layer);
    w.q = streamed(in(layer, "attn_q.weight"), {q_size, hidden, "attention.head_count", "embedding_length"});
    w.k = streamed(in(layer, "attn_k.weight"),
                   {kv_size, hidden, "attention.head_count_kv", "embedding_length"});
    if (!config_.values_are_keys(layer)) {
      w.v = streamed(in(layer, "attn_v.weight"),
                     {kv_size, hidden, "attention.head_count_kv", "embedding_length"});
    }
    const auto has_part = [&](std::string_view part) { return has(in(layer, part)); };
    if (config_.architecture.qkv_bias || has_part("attn_q.bias") || has_part("attn_k.bias") ||
        has_part("attn_v.bias")) {
      w.q_bias = vector(in(layer, "attn_q.bias"), q_size, "attention.head_count");
      w.k_bias = vector(in(layer, "attn_k.bias"), kv_size, "attention.head_count_kv");
      if (w.v) w.v_bias = vector(in(layer, "attn_v.bias"), kv_size, "attention.head_count_kv");
    }
    if (config_.architecture.qk_norm == QkNorm::head) {
      const LayerConfig& of_layer = config_.layer(layer);
      const std::string_view key =
          of_layer.heads && of_layer.window ? "attention.key_length_swa" : "attention.key_length";
      const LayerHeads heads = config_.heads(layer);
      const bool of_each = config_.architecture.norm == NormKind::layer;
      w.q_norm = widened(in(layer, "attn_q_norm.weight"),
                         {of_each ? config_.num_heads : 1, heads.size, "attention.head_count", key});
      w.k_norm = widened(in(layer, "attn_k_norm.weight"),
                         {of_each ? heads.kv_heads : 1, heads.size, "attention.head_count_kv", key});
    } else if (config_.architecture.qk_norm == QkNorm::row) {
      w.q_norm = vector(in(layer, "attn_q_norm.weight"), q_size, "attention.head_count");
      w.k_norm = vector(in(layer, "attn_k_norm.weight"), kv_size, "attention.head_count_kv");
    }
  }

  void load_latent(int32_t layer, LayerWeights& w) {
    const LatentAttention& latent = config_.latent;
    const int64_t q_size = int64_t{config_.num_heads} * latent.key_size;
    constexpr std::string_view kQRank = "attention.q_lora_rank", kRank = "attention.kv_lora_rank";
    if (latent.q_rank > 0) {
      w.q_a = streamed(in(layer, "attn_q_a.weight"),
                       {latent.q_rank, config_.hidden_size, kQRank, "embedding_length"});
      w.q_a_norm = vector(in(layer, "attn_q_a_norm.weight"), latent.q_rank, kQRank);
      w.q = streamed(in(layer, "attn_q_b.weight"), {q_size, latent.q_rank, "attention.head_count", kQRank});
    } else {
      w.q = streamed(in(layer, "attn_q.weight"),
                     {q_size, config_.hidden_size, "attention.head_count", "embedding_length"});
    }
    w.kv_a = streamed(in(layer, "attn_kv_a_mqa.weight"),
                      {config_.head_size, config_.hidden_size, kRank, "embedding_length"});
    w.kv_a_norm = vector(in(layer, "attn_kv_a_norm.weight"), latent.kv_rank, kRank);
    w.k_b = streamed(in(layer, "attn_k_b.weight"),
                     {latent.kv_rank, latent.key_size - config_.rotary_size, kRank,
                      "attention.key_length_mla", config_.num_heads, "attention.head_count"});
    w.v_b = streamed(in(layer, "attn_v_b.weight"),
                     {latent.value_size, latent.kv_rank, "attention.value_length_mla", kRank,
                      config_.num_heads, "attention.head_count"});
  }

  void load_ffn(int32_t layer, LayerWeights& w) {
    const Expected wide{config_.ffn_size, config_.hidden_size, "feed_forward_length", "embedding_length"};
    if (config_.architecture.has_gate) {
      w.gate = streamed(in(layer, "ffn_gate.weight"), wide);
      w.gate_bias = bias(in(layer, "ffn_gate.bias"), config_.ffn_size, "feed_forward_length");
    }
    w.up = streamed(in(layer, "ffn_up.weight"), wide);
    w.up_bias = bias(in(layer, "ffn_up.bias"), config_.ffn_size, "feed_forward_length");
    w.down = streamed(in(layer, "ffn_down.weight"),
                      {config_.hidden_size, config_.ffn_size, "embedding_length", "feed_forward_length"});
    w.down_bias = bias_of_sum(in(layer, "ffn_down.bias"));
    if (config_.architecture.has_gate) require_same_type(layer, w.gate, w.up);
  }

  void load_experts(int32_t layer, LayerWeights& w) {
    refuse_older_layout(in(layer, "ffn_gate.0.weight"), in(layer, "ffn_gate_exps.weight"),
                        "one tensor for each expert, the layout of Mixtral files of before April 2024");
    const std::string_view ffn_key = config_.architecture.expert_ffn_key;
    const int64_t ffn_size = config_.expert_ffn_size;
    const Expected wide{ffn_size, config_.hidden_size, ffn_key, "embedding_length", config_.num_experts};
    w.router = streamed(in(layer, "ffn_gate_inp.weight"),
                        {config_.num_experts, config_.hidden_size, "expert_count", "embedding_length"});
    w.router_bias = bias(in(layer, "ffn_gate_inp.bias"), config_.num_experts, "expert_count");
    if (config_.architecture.choice_bias || has(in(layer, "exp_probs_b.bias")))
      w.choice_bias = vector(in(layer, "exp_probs_b.bias"), config_.num_experts, "expert_count");
    w.gate = streamed(in(layer, "ffn_gate_exps.weight"), wide);
    w.up = streamed(in(layer, "ffn_up_exps.weight"), wide);
    w.down = streamed(in(layer, "ffn_down_exps.weight"),
                      {config_.hidden_size, ffn_size, "embedding_length", ffn_key, config_.num_experts});
    w.gate_bias = expert_bias(in(layer, "ffn_gate_exps.bias"), ffn_size, ffn_key);
    w.up_bias = expert_bias(in(layer, "ffn_up_exps.bias"), ffn_size, ffn_key);
    const Weight down_bias =
        expert_bias(in(layer, "ffn_down_exps.bias"), config_.hidden_size, "embedding_length");
    if (config_.rank.is_first()) w.down_bias = down_bias;
    require_same_type(layer, w.gate, w.up);
    if (config_.shared_ffn_size > 0) load_shared_experts(layer, w);
  }

  void load_shared_experts(int32_t layer, LayerWeights& w) {
    constexpr std::string_view kFfnKey = "expert_shared_feed_forward_length (or expert_shared_count)";
    const Expected wide{config_.shared_ffn_size, config_.hidden_size, kFfnKey, "embedding_length"};
    w.shared_gate = streamed(in(layer, "ffn_gate_shexp.weight"), wide);
    w.shared_up = streamed(in(layer, "ffn_up_shexp.weight"), wide);
    w.shared_down = streamed(in(layer, "ffn_down_shexp.weight"),
                             {config_.hidden_size, config_.shared_ffn_size, "embedding_length", kFfnKey});
    if (config_.architecture.shared_gate)
      w.shared_weight =
          streamed(in(layer, "ffn_gate_inp_shexp.weight"), {1, config_.hidden_size, "", "embedding_length"});
  }

  void refuse_older_layout(const std::string& older, const std::string& newer,
                           std::string_view layout) const {
    if (source_.find_tensor(older) != nullptr) {
      fail<FileError>("{}: tensor {}: {}; expected {}: convert the model again", source_.name(), older,
                      layout, newer);
    }
  }

  /// One kernel streams gate and up of experts, so their types must be equal; in every known file they are.
  void require_same_type(int32_t layer, const Weight& gate, const Weight& up) const {
    if (gate.count > 1 && gate.dtype != up.dtype) {
      fail<FileError>("{}: layer {}: the gate weight of experts is {}, expected {} as the up weight",
                      source_.name(), layer, minfer::name(gate.dtype), minfer::name(up.dtype));
    }
  }

  /// A tensor of one element.
  float number(const std::string& tensor_name) {
    const HostTensor& tensor = checked(tensor_name, {1, 1});
    float value = 0.0f;
    cpu::dequantise_row(tensor.data, tensor.dtype, 1, cpu::selected_isa(), &value);
    if (!std::isfinite(value))
      fail<FileError>("{}: tensor {} holds {}, expected a finite number", source_.name(), tensor_name, value);
    return value;
  }

  /// Divisors of the rotary frequencies; empty where the file has none.
  std::vector<float> rope_factors(const std::string& tensor_name) {
    if (!has(tensor_name)) return {};
    const HostTensor& tensor =
        checked(tensor_name, {1, config_.rotary_size / 2, "", "rope.dimension_count / 2"});
    std::vector<float> factors(static_cast<size_t>(tensor.cols));
    cpu::dequantise_row(tensor.data, tensor.dtype, tensor.cols, cpu::selected_isa(), factors.data());
    for (float factor : factors) {
      if (!(std::isfinite(factor) && factor > 0.0f)) {
        fail<FileError>("{}: tensor {} holds {}, expected positive numbers", source_.name(), tensor_name,
                        factor);
      }
    }
    return factors;
  }

  void refuse_unused_tensors() const {
    for (const HostTensor& tensor : source_.tensors()) {
      if (!used_.contains(tensor.name)) {
        fail<FileError>("{}: tensor {} is not part of architecture {} as known here", source_.name(),
                        tensor.name, config_.architecture.name);
      }
    }
  }

  const ModelSource& source_;
  const ModelConfig& config_;
  Target& target_;
  const LoadProgress& progress_;
  std::optional<DType> quantization_;
  ModelWeights weights_;
  std::unordered_set<std::string> used_;
};

}  // namespace

ModelWeights load_weights(const ModelSource& source, Target& target, const LoadProgress& progress,
                          std::optional<DType> quantization) {
  return Loader(source, target, progress, quantization).load();
}

}  // namespace minfer
