#include <algorithm>
#include <string>

#include "kernels/base/error.h"
#include "models/decoder/config/eagle_head.h"
#include "models/decoder/weights/weights.h"

namespace minfer {
namespace {

class ShapeCheck {
 public:
  ShapeCheck(std::string_view file, const ModelConfig& config, const ShapeLimits& limits,
             std::string_view backend)
      : file_(file), config_(config), limits_(limits), backend_(backend) {}

  void run(std::span<const HostTensor> tensors) const {
    at_most("tokenizer.ggml.tokens (or vocab_size): vocabulary", config_.vocab_size, limits_.max_vocab_size);
    config_.is_latent() ? check_latent() : check_heads();
    at_most(key(config_.delta_net.decays_rows ? "kda.head_dim" : "ssm.state_size"),
            config_.delta_net.key_size, limits_.max_delta_key_size);
    for (const RopeConfig& rope : config_.ropes)
      multiple(key("rope.dimension_count"), config_.rotary_size_of(rope), limits_.rotary_size_multiple);
    at_most(key("expert_count"), config_.num_experts, limits_.max_experts);
    at_most(key("embedding_length"), config_.hidden_size, limits_.max_hidden_size);
    at_most(key("feed_forward_length"), config_.ffn_size, limits_.max_columns);
    at_most(key("embedding_length_per_layer_input"), config_.layer_input_size,
            std::min(limits_.max_columns, limits_.max_hidden_size));
    at_most(key(config_.architecture.expert_ffn_key), config_.expert_ffn_size, limits_.max_columns);
    at_most(key("expert_shared_feed_forward_length") + " (or expert_shared_count)", config_.shared_ffn_size,
            limits_.max_columns);
    at_most(key("attention.head_count") + " x head size", config_.output_size(), limits_.max_columns);
    for (const HostTensor& tensor : tensors) {
      if (tensor.rows > 1 && tensor.dtype != DType::f32)
        multiple("tensor " + tensor.name + ": columns", tensor.cols, limits_.columns_multiple);
    }
    if (!config_.eagle) return;
    const EagleHead& head = *config_.eagle;
    const ShapeCheck of_head(head.file, head.config, limits_, backend_);
    of_head.run({});
    of_head.at_most("eagle3.embedding_length x 2", int64_t{2} * head.config.hidden_size, limits_.max_columns);
    of_head.at_most("eagle3.target_hidden_size x 3", int64_t{3} * head.target_hidden_size,
                    limits_.max_columns);
  }

 private:
  void check_heads() const {
    const std::string head = key("attention.key_length") + " (or embedding_length / attention.head_count)";
    for (int32_t layer = 0; layer < config_.num_all_layers(); ++layer) {
      at_most(head + ": head size", config_.heads(layer).size, limits_.max_head_size);
      multiple(head + ": head size", config_.heads(layer).size, limits_.head_size_multiple);
    }
    at_most(key("attention.head_count_kv") + ", sizes of heads and windows: kinds of layers",
            std::ssize(attention_kinds_of(config_, ShapeLimits::kNone)), limits_.max_attention_kinds);
  }

  void check_latent() const {
    const std::string rank = key("attention.kv_lora_rank");
    at_most(rank + " + rope.dimension_count: row of the cache", config_.head_size, limits_.max_latent_row);
    multiple(rank, config_.latent.kv_rank, limits_.head_size_multiple);
    at_most(key("attention.q_lora_rank"), config_.latent.q_rank, limits_.max_columns);
    const Indexer& indexer = config_.indexer;
    const std::string key_length = key("attention.indexer.key_length");
    at_most(key_length, indexer.key_size, limits_.max_head_size);
    multiple(key_length, indexer.key_size, limits_.head_size_multiple);
    at_most(key("attention.indexer.head_count") + " x key_length", int64_t{indexer.heads} * indexer.key_size,
            limits_.max_indexer_columns);
  }

  std::string key(std::string_view name) const {
    return fmt::format("{}.{}", config_.architecture.name, name);
  }

  void at_most(const std::string& what, int64_t found, int64_t most) const {
    if (found <= most) return;
    fail<FileError>("{}: {}: {}, expected at most {} on the {} backend", file_, what, found, most, backend_);
  }

  void multiple(const std::string& what, int64_t found, int64_t of) const {
    if (found % of == 0) return;
    fail<FileError>("{}: {}: {}, expected a multiple of {} on the {} backend", file_, what, found, of,
                    backend_);
  }

  std::string_view file_;
  const ModelConfig& config_;
  const ShapeLimits& limits_;
  std::string_view backend_;
};

}  // namespace

void check_shapes(const ModelSource& source, const ShapeLimits& limits, std::string_view backend) {
  ShapeCheck(source.name(), source.config(), limits, backend).run(source.tensors());
}

}  // namespace minfer
