#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/decoder/weights/weights.h"

namespace minfer {

/// A size, and the metadata key (without the architecture) that states it; "": none does.
struct Dimension {
  int64_t size;
  std::string_view key = "";
};

/// The shape that a tensor must have.
struct TensorShape {
  Dimension rows, cols;
  Dimension count = {1, "expert_count"};
};

/// Goes through the tensors that a model of a family has, in the order of its layers. One child loads them, another lists those of a
/// synthetic model.
class ModelTensors {
 protected:
  enum class Form : uint8_t {
    matrix,
    vector,      ///< norms and biases: f32 for the kernels; files may hold them in another plain type
    transposed,  ///< f32, with rows as columns
  };

  /// Both arguments must outlive this. `model` names it in messages.
  ModelTensors(const ModelConfig& config, std::string_view model) : config_(config), model_(model) {}
  virtual ~ModelTensors() = default;

  void take_all(ModelWeights& weights);
  /// Takes the tensors of a head, whose configuration this has. `target`: weights of its model.
  void take_eagle(const EagleHead& head, const ModelWeights& target, EagleWeights& weights);

  virtual bool has(const std::string& tensor) const = 0;
  /// A tensor that files may have and no op needs.
  virtual void ignore(const std::string&) {}
  virtual Weight take(const std::string& tensor, const TensorShape& shape, Form form) = 0;
  /// The elements of a vector, finite, and greater than 0 if `positive`; empty: the model has none.
  virtual std::vector<float> numbers(const std::string& tensor, Dimension size, bool positive) = 0;

  const ModelConfig& config_;
  std::string_view model_;

 private:
  Dimension hidden() const { return {config_.hidden_size, "embedding_length"}; }
  Dimension attention_input() const {
    return {(config_.architecture.joins_embedding ? 2 : 1) * hidden().size, hidden().key};
  }
  Dimension heads(int64_t size) const { return {size, "attention.head_count"}; }
  Dimension kv_heads(int64_t size) const { return {size, "attention.head_count_kv"}; }

  Weight matrix(const std::string& tensor, Dimension rows, Dimension cols,
                Dimension count = {1, "expert_count"}) {
    return take(tensor, {rows, cols, count}, Form::matrix);
  }
  Weight vector(const std::string& tensor, Dimension size, Dimension rows = {1}) {
    return take(tensor, {rows, size}, Form::vector);
  }
  Weight bias(const std::string& tensor, Dimension size, Dimension rows = {1});
  Weight bias_of_sum(const std::string& tensor, Dimension rows = {1});
  Weight norm(const std::string& tensor) { return vector(tensor + ".weight", hidden()); }
  Weight norm_bias(const std::string& tensor);

  void take_draft(ModelWeights& weights);
  void take_rope_factors(ModelWeights& weights);
  LayerWeights take_layer(int32_t layer);
  void take_streams(const std::string& blk, StreamWeights& w);
  void take_delta_net(const std::string& blk, LayerWeights& w);
  void take_kimi_delta(const std::string& blk, LayerWeights& w);
  void take_short_conv(const std::string& blk, LayerWeights& w);
  void take_mamba(const std::string& blk, LayerWeights& w);
  void take_attention(int32_t layer, const std::string& blk, LayerWeights& w);
  void take_qkv(int32_t layer, const std::string& blk, LayerWeights& w);
  void take_latent(const std::string& blk, LayerWeights& w);
  void take_indexer(int32_t layer, const std::string& blk, IndexerWeights& w);
  void take_ffn(int32_t layer, const std::string& blk, LayerWeights& w);
  void take_experts(int32_t layer, const std::string& blk, LayerWeights& w);
  void take_shared(const std::string& blk, LayerWeights& w);
  void refuse_older_layout(const std::string& older, const std::string& newer, std::string_view layout) const;
};

}  // namespace minfer
