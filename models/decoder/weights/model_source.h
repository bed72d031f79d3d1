#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/chat/chat_template_source.h"
#include "models/decoder/config/config.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The source of a model: a GGUF file, the demo model inside the binary, or random weights of a known shape. Tensors point into the
/// source, which outlives everything made from it. Immutable after construction, except for release_data().
class ModelSource {
 public:
  ModelSource(const ModelSource&) = delete;
  ModelSource& operator=(const ModelSource&) = delete;
  virtual ~ModelSource() = default;
  const ModelConfig& config() const { return config_; }
  const HostTensor* find_tensor(std::string_view name) const;
  std::span<const HostTensor> tensors() const { return tensors_; }
  virtual std::unique_ptr<Tokenizer> make_tokenizer() const = 0;
  /// Throws FileError if the file behind the tensors has shrunk since it was opened. Then data read from it must not be used.
  virtual void check_intact() const {}
  /// Releases the bytes behind the tensors, after the caller has copied them. A file is unmapped and closed, and may then be replaced.
  /// Tensors keep name, type and shape; their data is null. Do not call make_tokenizer() afterwards.
  virtual void release_data();
  const ChatTemplateSource& chat_template() const { return chat_template_; }  ///< empty texts: there is none
  const std::string& name() const { return name_; }                           ///< for messages and records

 protected:
  ModelSource(std::string name, ModelConfig config, ChatTemplateSource chat_template = {})
      : name_(std::move(name)), config_(std::move(config)), chat_template_(std::move(chat_template)) {}
  void add_tensor(HostTensor tensor);

  std::string name_;
  ModelConfig config_;
  ChatTemplateSource chat_template_;
  std::vector<HostTensor> tensors_;
  std::unordered_map<std::string, size_t> index_;  ///< of tensors_, by name
};

/// Begins the names of an EAGLE-3 head's tensors (ModelConfig::eagle) in a source. EagleHead::columns is one of them.
inline constexpr std::string_view kEaglePrefix = "eagle3.", kEagleColumns = "columns";

/// The tensor that a source has if its configuration names suppressed tokens: [1, vocab] f32, -inf for these and else 0.
inline constexpr std::string_view kSuppressedTokens = "suppressed_tokens";

/// The layer of a tensor such as "blk.3.attn_q.weight"; -1 for tensors outside layers.
int32_t layer_of_tensor(std::string_view name);
/// The name behind the layer's number; of tensors outside layers, all of it.
std::string_view part_of_tensor(std::string_view name);

/// Opens `spec`: a path to a GGUF file, "synthetic:NAME[:TYPE]", or empty for the embedded demo model. `draft_layer` as in read_config();
/// a synthetic model then has one. Throws FileError.
std::unique_ptr<ModelSource> open_model(const std::string& spec, bool draft_layer = false);
/// The same, without the data of a synthetic model's large tensors.
std::unique_ptr<ModelSource> open_shapes(const std::string& spec);
/// Opens a model with the EAGLE-3 head of another file as its layer for drafts. Throws FileError, also where the two do not fit together.
std::unique_ptr<ModelSource> open_model_with_head(const std::string& spec, const std::string& head);
/// True if `spec` is a file with such a head.
bool is_eagle_head(const std::string& spec);

/// A GGUF file in memory; `bytes` as in GgufFile::from_memory.
std::unique_ptr<ModelSource> open_model_in_memory(std::span<const std::byte> bytes, std::string name,
                                                  bool draft_layer = false);

/// Opens only the tokeniser; also works for vocabulary-only files.
std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec);
/// Opens only the chat template.
ChatTemplateSource open_chat_template_source(const std::string& spec);

/// Random weights (random blocks and scales, never zeros) of a real model's shape; see synthetic.cpp for the names. The same `spec` gives the
/// same weights. Throws Error naming an unknown model or type and the known ones. A tensor of 256 KiB or more has null data if `wanted`
/// returns false for it; its type and shape are set.
std::unique_ptr<ModelSource> make_synthetic_model(
    std::string_view spec, const std::function<bool(std::string_view tensor)>& wanted = {},
    bool draft_layer = false);
/// Returns only the shape, without making the weights.
ModelConfig synthetic_config(std::string_view spec);
/// The names that a synthetic model may have, without types.
std::vector<std::string> synthetic_model_names();
inline constexpr std::string_view kSyntheticPrefix = "synthetic:";

/// The demo model (models/demo/minfer-demo.gguf) as it stands in the binary.
std::span<const std::byte> embedded_demo_model();

}  // namespace minfer
