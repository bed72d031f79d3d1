#include "models/model_source.h"

namespace minfer {
namespace {

class GgufModel : public ModelSource {
 public:
  explicit GgufModel(GgufFile file) : file_(std::move(file)), config_(read_config(file_)) {}

  const ModelConfig& config() const override { return config_; }
  const HostTensor* find_tensor(std::string_view tensor_name) const override {
    return file_.find_tensor(tensor_name);
  }
  std::span<const HostTensor> tensors() const override { return file_.tensors(); }
  std::unique_ptr<Tokenizer> make_tokenizer() const override { return minfer::make_tokenizer(file_); }
  std::string chat_template() const override {
    return std::string(file_.get_string("tokenizer.chat_template").value_or(""));
  }
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

}  // namespace minfer
