#include "models/decoder/config/eagle_head.h"

#include <utility>

#include <fmt/ranges.h>

#include "models/decoder/config/config_keys.h"

namespace minfer {
namespace {

constexpr Architecture kFamily{
    .name = EagleHead::kArchitecture, .joins_embedding = true, .rope_pairing = RopePairing::interleaved};

std::array<int32_t, 3> read_target_layers(const KeyReader& keys, int32_t num_layers) {
  constexpr std::string_view kKey = "target_layers";
  std::array<int32_t, 3> layers{};
  const std::vector<int64_t> found = keys.file().get_ints(keys.full_key(kKey));
  if (found.size() != layers.size())
    keys.refuse(kKey, "has {} elements, expected {} layers of the model", found.size(), layers.size());
  for (size_t i = 0; i < layers.size(); ++i) {
    if (found[i] < 0 || found[i] > num_layers)
      keys.refuse(kKey, "has layer {}, expected 0 to {}, the number of the model's layers", found[i],
                  num_layers);
    layers[i] = static_cast<int32_t>(found[i]);
  }
  return layers;
}

/// The tensor d2t has the target's token for each of the head's. Sets the head's vocabulary.
void read_columns(const GgufFile& file, EagleHead& head) {
  const HostTensor* const tokens = file.find_tensor("d2t");
  if (tokens == nullptr) return;
  if (tokens->dtype != DType::i64 || tokens->rows * tokens->count != 1)
    fail<FileError>("{}: tensor d2t: {} of shape {}, expected a vector of i64", file.name(),
                    name(tokens->dtype), tokens->shape());
  head.columns.assign(static_cast<size_t>(head.target_vocab_size), -1.0f);
  for (int64_t i = 0; i < tokens->cols; ++i) {
    const int64_t token = static_cast<const int64_t*>(tokens->data)[i];
    if (token < 0 || token >= head.target_vocab_size)
      fail<FileError>("{}: tensor d2t: element {} is token {}, expected one of the model's {}", file.name(),
                      i, token, head.target_vocab_size);
    float& column = head.columns[static_cast<size_t>(token)];
    if (column >= 0.0f)
      fail<FileError>("{}: tensor d2t: elements {} and {} are token {}, expected each token once",
                      file.name(), column, i, token);
    column = static_cast<float>(i);  // exact: a vocabulary has at most 2^24 tokens
  }
  head.config.vocab_size = static_cast<int32_t>(tokens->cols);
}

}  // namespace

EagleHead read_eagle_head(const GgufFile& file, const ModelConfig& target) {
  if (const std::string_view found = file.require_string("general.architecture");
      found != EagleHead::kArchitecture)
    fail<FileError>("{}: general.architecture is {}, expected {}, a head for drafts", file.name(), found,
                    EagleHead::kArchitecture);
  if (target.is_latent())
    fail<FileError>("{}: a head for drafts of {}, whose attention is latent: not supported", file.name(),
                    target.name);
  const KeyReader keys(file, EagleHead::kArchitecture);
  keys.ranged("block_count", 1, 1);
  EagleHead head{.file = file.name(),
                 .config = read_config(file, kFamily),
                 .target_layers = read_target_layers(keys, target.num_layers),
                 .target_hidden_size = keys.positive("target_hidden_size"),
                 .target_vocab_size = target.vocab_size,
                 .norms_features = keys.flag("norm_before_fc"),
                 .norms_residual = keys.flag("norm_before_residual")};
  if (head.target_hidden_size != target.hidden_size)
    keys.refuse("target_hidden_size", "is {}, expected {}, embedding_length of the model",
                head.target_hidden_size, target.hidden_size);
  if (head.config.vocab_size != target.vocab_size)
    fail<FileError>("{}: tokenizer.ggml.tokens (or vocab_size): {} tokens, expected {}, those of the model",
                    file.name(), head.config.vocab_size, target.vocab_size);
  // No head was trained with a pair for the first token, in front of which there is no hidden state.
  head.config.layers.front().window = AttentionWindow(0, false, 1);
  read_columns(file, head);
  return head;
}

void add_eagle_head(EagleHead head, ModelConfig& target) {
  target.has_draft_layer = true;
  target.layers.push_back({.heads = head.config.heads(0)});
  target.eagle = std::make_shared<const EagleHead>(std::move(head));
}

}  // namespace minfer
