#include "models/decoder/model_source.h"

namespace minfer {
namespace {

/// A file may have several templates, each under its name; of those one is for tools.
ChatTemplateSource read_chat_template(const GgufFile& file) {
  ChatTemplateSource source;
  source.text = file.get_string("tokenizer.chat_template").value_or("");
  source.tool_use = file.get_string("tokenizer.chat_template.tool_use").value_or("");
  if (source.text.empty()) source.text = file.get_string("tokenizer.chat_template.default").value_or("");
  source.name = fmt::format("chat template of {}", file.name());
  return source;
}

class GgufModel : public ModelSource {
 public:
  explicit GgufModel(GgufFile file) : file_(std::move(file)), config_(read_config(file_)) {}

  const ModelConfig& config() const override { return config_; }
  const HostTensor* find_tensor(std::string_view tensor_name) const override {
    return file_.find_tensor(tensor_name);
  }
  std::span<const HostTensor> tensors() const override { return file_.tensors(); }
  std::unique_ptr<Tokenizer> make_tokenizer() const override { return minfer::make_tokenizer(file_); }
  ChatTemplateSource chat_template() const override { return read_chat_template(file_); }
  std::string name() const override { return file_.name(); }
  void check_intact() const override { file_.check_intact(); }

 private:
  GgufFile file_;
  ModelConfig config_;
};

GgufFile open_gguf(const std::string& spec) {
  return spec.empty() ? GgufFile::from_memory(embedded_demo_model(), "the embedded demo model")
                      : GgufFile::open(spec);
}

}  // namespace

std::unique_ptr<ModelSource> open_model(const std::string& spec) {
  if (spec.starts_with(kSyntheticPrefix)) return make_synthetic_model(spec);
  return std::make_unique<GgufModel>(open_gguf(spec));
}

std::unique_ptr<ModelSource> open_model_in_memory(std::span<const std::byte> bytes, std::string name) {
  return std::make_unique<GgufModel>(GgufFile::from_memory(bytes, std::move(name)));
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
