#pragma once

#include <memory>
#include <vector>

#include "kernels/comm/rank.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// The shape of a rank's share. Heads, KV heads (of each layer), delta-net heads, short-convolution channels, feed-forward columns and
/// vocabulary are divided by the number of ranks (Shoeybi et al. 2019, "Megatron-LM", section 3); hidden size and layers are not. With
/// fewer KV heads than ranks, several ranks hold the same one. Throws Error naming what does not divide, and numbers of ranks that would.
ModelConfig shard_config(const ModelConfig& whole, Rank rank);

/// A rank's share of a model: each tensor is the part of the model's tensor that the rank computes with, in place in memory.
/// q, k, v, gate, up, embedding and head are split by rows, the products behind them by columns, at whole blocks of their type. Norms
/// and routers are whole. For tensors of layers with states, a rank's part lies in several places and is copied. `model` must outlive it.
class ModelShard : public ModelSource {
 public:
  enum class Contents : uint8_t { tensors, shapes };

  /// `contents`: shapes without data are enough to compute the share's memory. Throws like shard_config(), or FileError naming a
  /// tensor whose columns cannot be split.
  ModelShard(const ModelSource& model, Rank rank, Contents contents = Contents::tensors);

  std::unique_ptr<Tokenizer> make_tokenizer() const override { return model_.make_tokenizer(); }
  void check_intact() const override { model_.check_intact(); }
  /// Releases the copies; the owner of the model releases the model's bytes.
  void release_data() override;

 private:
  const ModelSource& model_;
  std::vector<std::vector<std::byte>> gathered_;  ///< copies of parts that lie in several places of the model
};

}  // namespace minfer
