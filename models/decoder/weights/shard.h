#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/comm/rank.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// The shape of a rank's share of a model: heads, KV heads, heads of delta nets, channels of short convolutions, feed-forward columns and vocabulary divided by the number of ranks (KV heads of each layer; as
/// Shoeybi et al. 2019, "Megatron-LM", section 3); hidden size and layers as they are. Fewer KV heads than ranks: several ranks hold
/// the same one. Throws Error naming what does not divide, and the numbers of ranks that would.
ModelConfig shard_config(const ModelConfig& whole, Rank rank);

/// A rank's share of a model: each tensor is the part of the model's own that the rank computes with, where it is in memory.
/// q, k, v, gate, up, embedding and head are split by rows, the products behind them by columns, at whole blocks of their type; norms
/// and routers are whole. Of tensors of layers with states a rank's part lies in several places: those are copied. `model` outlives it.
class ModelShard : public ModelSource {
 public:
  enum class Contents : uint8_t { tensors, shapes };

  /// `contents`: shapes alone, without data, are enough to tell what the share takes. Throws as shard_config(), or FileError naming a
  /// tensor whose columns cannot be split.
  ModelShard(const ModelSource& model, Rank rank, Contents contents = Contents::tensors);

  const ModelConfig& config() const override { return config_; }
  const HostTensor* find_tensor(std::string_view name) const override;
  std::span<const HostTensor> tensors() const override { return tensors_; }
  std::unique_ptr<Tokenizer> make_tokenizer() const override { return model_.make_tokenizer(); }
  void check_intact() const override { model_.check_intact(); }
  /// Of what was copied; the model's bytes are let go of by whoever owns it.
  void release_data() override;
  ChatTemplateSource chat_template() const override { return model_.chat_template(); }
  std::string name() const override { return model_.name(); }

 private:
  const ModelSource& model_;
  ModelConfig config_;
  std::vector<HostTensor> tensors_;
  std::vector<std::vector<std::byte>> gathered_;  ///< what lies in several places of the model
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace minfer
