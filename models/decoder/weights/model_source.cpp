#include "models/decoder/weights/model_source.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <stdexcept>

#include "models/chat/read_chat_template.h"
#include "models/decoder/config/eagle_head.h"
#include "models/decoder/weights/fused_tensors.h"
#include "models/gguf/nearest_name.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// Throws FileError for a tensor that no op takes.
void check_type(const GgufFile& file, const HostTensor& tensor) {
  if (tensor.dtype == DType::i64)
    fail<FileError>("{}: tensor {}: type i64, expected a type of weights", file.name(),
                    printable(tensor.name));
}

/// The tensors of layers that run, and tensors outside layers.
std::vector<HostTensor> tensors_to_run(const GgufFile& file, const ModelConfig& config) {
  const int64_t all = file.get_int(fmt::format("{}.block_count", config.architecture.name)).value_or(0);
  std::vector<HostTensor> tensors;
  std::ranges::copy_if(file.tensors(), std::back_inserter(tensors), [&](const HostTensor& tensor) {
    check_type(file, tensor);
    const int32_t layer = layer_of_tensor(tensor.name);
    return layer < config.num_all_layers() || layer >= all;
  });
  return tensors;
}

class GgufModel : public ModelSource {
 public:
  GgufModel(GgufFile file, bool draft_layer, std::optional<GgufFile> head = {})
      : ModelSource(file.name(), read_config(file, draft_layer), read_chat_template(file)),
        file_(std::move(file)),
        head_(std::move(head)) {
    ConvertedTensors all = split_latent_tensors(
        split_fused_tensors(tensors_to_run(*file_, config_), config_, name_), config_, name_);
    join_convolutions(config_, name_, all);
    converted_ = std::move(all.converted);
    for (HostTensor& tensor : all.tensors)
      add_tensor(std::move(tensor));
    if (!config_.suppressed_tokens.empty()) add_suppressed_tokens();
    if (head_) add_head();
  }

  std::unique_ptr<Tokenizer> make_tokenizer() const override {
    if (!file_) throw std::logic_error("make_tokenizer: the model's file has been released");
    return minfer::make_tokenizer(*file_);
  }
  void check_intact() const override {
    if (file_) file_->check_intact();
    if (head_) head_->check_intact();
  }
  void release_data() override {
    ModelSource::release_data();
    converted_.clear();
    file_.reset();
    head_.reset();
  }

 private:
  void add_suppressed_tokens() {
    std::vector<float> logits(static_cast<size_t>(config_.vocab_size), 0.0f);
    for (const int32_t token : config_.suppressed_tokens)
      logits[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity();
    add_vector(std::string(kSuppressedTokens), logits);
  }

  void add_head() {
    add_eagle_head(read_eagle_head(*head_, config_), config_);
    for (HostTensor tensor : head_->tensors()) {
      if (tensor.name == "d2t") continue;
      check_type(*head_, tensor);
      tensor.name.insert(0, kEaglePrefix);
      add_tensor(std::move(tensor));
    }
    if (const std::vector<float>& columns = config_.eagle->columns; !columns.empty())
      add_vector(fmt::format("{}{}", kEaglePrefix, kEagleColumns), columns);
  }

  void add_vector(std::string name, std::span<const float> values) {
    const auto bytes = std::as_bytes(values);
    converted_.emplace_back(bytes.begin(), bytes.end());
    add_tensor({.name = std::move(name), .data = converted_.back().data(), .cols = std::ssize(values)});
  }

  std::optional<GgufFile> file_, head_;            ///< until their bytes are let go of
  std::vector<std::vector<std::byte>> converted_;  ///< tensors without bytes in the file
};

/// Throws FileError if a spec is "synthetic:" with a slip of the keyboard.
void check_prefix(const std::string& spec) {
  const std::string known[] = {std::string(kSyntheticPrefix)};
  const std::string prefix = spec.substr(0, spec.find(':') + 1);
  if (spec.find(':') == std::string::npos || std::filesystem::exists(spec) ||
      nearest_names(prefix, known).empty())
    return;
  fail<FileError>("{}: no such file; did you mean \"{}{}\"?", spec, kSyntheticPrefix,
                  spec.substr(prefix.size()));
}

GgufFile open_gguf(const std::string& spec) {
  check_prefix(spec);
  return spec.empty() ? GgufFile::from_memory(embedded_demo_model(), "the embedded demo model")
                      : GgufFile::open(spec);
}

}  // namespace

const HostTensor* ModelSource::find_tensor(std::string_view name) const {
  const auto found = index_.find(std::string(name));
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

void ModelSource::release_data() {
  for (HostTensor& tensor : tensors_)
    tensor.data = nullptr;
}

void ModelSource::add_tensor(HostTensor tensor) {
  index_[tensor.name] = tensors_.size();
  tensors_.push_back(std::move(tensor));
}

int32_t layer_of_tensor(std::string_view name) {
  constexpr std::string_view kPrefix = "blk.";
  if (!name.starts_with(kPrefix)) return -1;
  int32_t layer = -1;
  const char* const begin = name.data() + kPrefix.size();
  const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
  const bool is_number = error == std::errc() && end != name.data() + name.size() && *end == '.';
  return is_number && layer >= 0 ? layer : -1;
}

std::string_view part_of_tensor(std::string_view name) {
  const size_t dot = name.starts_with("blk.") ? name.find('.', 4) : std::string_view::npos;
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

std::unique_ptr<ModelSource> open_model(const std::string& spec, bool draft_layer) {
  if (spec.starts_with(kSyntheticPrefix)) return make_synthetic_model(spec, {}, draft_layer);
  return std::make_unique<GgufModel>(open_gguf(spec), draft_layer);
}

std::unique_ptr<ModelSource> open_model_with_head(const std::string& spec, const std::string& head) {
  if (spec.starts_with(kSyntheticPrefix)) fail("{}: a head for drafts needs a model's file", spec);
  return std::make_unique<GgufModel>(open_gguf(spec), false, open_gguf(head));
}

bool is_eagle_head(const std::string& spec) {
  return !spec.starts_with(kSyntheticPrefix) &&
         open_gguf(spec).get_string("general.architecture") == EagleHead::kArchitecture;
}

std::unique_ptr<ModelSource> open_shapes(const std::string& spec) {
  if (!spec.starts_with(kSyntheticPrefix)) return open_model(spec);
  return make_synthetic_model(spec, [](std::string_view) { return false; });
}

std::unique_ptr<ModelSource> open_model_in_memory(std::span<const std::byte> bytes, std::string name,
                                                  bool draft_layer) {
  return std::make_unique<GgufModel>(GgufFile::from_memory(bytes, std::move(name)), draft_layer);
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& spec) {
  if (spec.starts_with(kSyntheticPrefix)) return make_byte_tokenizer(synthetic_config(spec).vocab_size);
  return make_tokenizer(open_gguf(spec));
}

ChatTemplateSource open_chat_template_source(const std::string& spec) {
  if (spec.starts_with(kSyntheticPrefix)) return {};
  return read_chat_template(open_gguf(spec));
}

}  // namespace minfer
