#include "models/decoder/weights/weights.h"

#include <cmath>
#include <unordered_set>

#include <fmt/ranges.h>

#include "kernels/cpu/lanes/isa.h"
#include "kernels/cpu/product/linear.h"
#include "models/decoder/config/eagle_head.h"
#include "models/decoder/weights/model_tensors.h"
#include "models/decoder/weights/quantise.h"

namespace minfer {
namespace {

/// Takes tensors from the source one by one, checks them and remembers which were used.
class Loader final : private ModelTensors {
 public:
  Loader(const ModelSource& source, Target& target, const LoadProgress& progress,
         std::optional<DType> quantization)
      : ModelTensors(source.config(), source.name()),
        source_(source),
        head_(source.config().eagle.get()),
        target_(target),
        progress_(progress),
        quantization_(quantization) {}

  ModelWeights load() {
    check_shapes(source_, target_.shape_limits(), target_.info().name);
    target_.reserve_weights(tensors_to_load(source_.tensors(), quantization_, model_));
    take_all(weights_);
    refuse_unused_tensors();
    if (head_ != nullptr) weights_.eagle = Loader(*this, *head_).load_head(weights_);
    source_.check_intact();
    return std::move(weights_);
  }

 private:
  /// Loads the head that belongs to `model`'s source.
  Loader(const Loader& model, const EagleHead& head)
      : ModelTensors(head.config, head.file),
        source_(model.source_),
        head_(&head),
        target_(model.target_),
        progress_(model.progress_),
        quantization_(model.quantization_),
        prefix_(kEaglePrefix),
        used_(model.used_) {}

  std::shared_ptr<const EagleWeights> load_head(const ModelWeights& target) {
    auto weights = std::make_shared<EagleWeights>();
    take_eagle(*head_, target, *weights);
    refuse_unused_tensors();
    weights->model.converted = std::move(weights_.converted);
    return weights;
  }

  const HostTensor* find(const std::string& tensor_name) const {
    return source_.find_tensor(fmt::format("{}{}", prefix_, tensor_name));
  }
  bool has(const std::string& tensor_name) const override { return find(tensor_name) != nullptr; }

  void ignore(const std::string& tensor_name) override {
    used_.insert(fmt::format("{}{}", prefix_, tensor_name));
  }

  Weight take(const std::string& tensor_name, const TensorShape& shape, Form form) override {
    const HostTensor& tensor = checked(tensor_name, shape);
    if (form == Form::transposed) return target_.load(transposed(tensor));
    if (form == Form::vector) return target_.load(tensor.dtype == DType::f32 ? tensor : in_f32(tensor));
    return target_.load(to_load(tensor, quantization_, model_));
  }

  std::vector<float> numbers(const std::string& tensor_name, Dimension size, bool positive) override {
    if (!has(tensor_name)) return {};
    const HostTensor& tensor = checked(tensor_name, {{1}, size});
    std::vector<float> values(static_cast<size_t>(tensor.cols));
    cpu::dequantise_row(tensor.data, tensor.dtype, tensor.cols, cpu::selected_isa(), values.data());
    for (const float value : values) {
      if (std::isfinite(value) && (value > 0.0f || !positive)) continue;
      fail<FileError>("{}: tensor {} holds {}, expected {}", model_, tensor_name, value,
                      positive ? "positive numbers" : "a finite number");
    }
    return values;
  }

  const HostTensor& checked(const std::string& tensor_name, const TensorShape& shape) {
    const HostTensor* tensor = find(tensor_name);
    if (tensor == nullptr) fail<FileError>("{}: tensor {} is missing", model_, tensor_name);
    const auto& [rows, cols, count] = shape;
    const HostTensor expected{.name = {}, .count = count.size, .rows = rows.size, .cols = cols.size};
    if (tensor->shape() != expected.shape()) {
      const std::string_view key = tensor->count != count.size ? count.key
                                   : tensor->rows != rows.size ? rows.key
                                                               : cols.key;
      fail<FileError>("{}: tensor {}: shape {}, expected {}{}", model_, tensor_name, tensor->shape(),
                      expected.shape(),
                      key.empty() ? "" : fmt::format(" from {}.{}", config_.architecture.name, key));
    }
    ignore(tensor_name);
    if (progress_) progress_(used_.size(), source_.tensors().size());
    return *tensor;
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

  HostTensor transposed(const HostTensor& original) {
    HostTensor tensor = in_f32(original);
    std::vector<float>& values = weights_.converted.back();
    const std::vector<float> rows = values;
    for (size_t i = 0; i < rows.size(); ++i) {
      const size_t row = i / static_cast<size_t>(tensor.cols), col = i % static_cast<size_t>(tensor.cols);
      values[col * static_cast<size_t>(tensor.rows) + row] = rows[i];
    }
    std::swap(tensor.rows, tensor.cols);
    return tensor;
  }

  void refuse_unused_tensors() const {
    for (const HostTensor& tensor : source_.tensors()) {
      const std::string_view name = tensor.name;
      const bool is_of_head = head_ != nullptr && name.starts_with(kEaglePrefix);
      if (is_of_head == prefix_.empty() || used_.contains(tensor.name)) continue;
      fail<FileError>("{}: tensor {} is not part of architecture {} as known here", model_,
                      name.substr(prefix_.size()), config_.architecture.name);
    }
  }

  const ModelSource& source_;
  const EagleHead* head_;  ///< of the source; null: it has none
  Target& target_;
  const LoadProgress& progress_;
  std::optional<DType> quantization_;
  std::string_view prefix_ = {};  ///< of the names in the source
  ModelWeights weights_;
  std::unordered_set<std::string> used_;  ///< by their names in the source
};

}  // namespace

ModelWeights load_weights(const ModelSource& source, Target& target, const LoadProgress& progress,
                          std::optional<DType> quantization) {
  return Loader(source, target, progress, quantization).load();
}

}  // namespace minfer
