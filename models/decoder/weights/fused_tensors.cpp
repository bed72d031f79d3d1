#include "models/decoder/weights/fused_tensors.h"

#include <unordered_set>

#include <fmt/ranges.h>

#include "kernels/error.h"
#include "models/decoder/weights/model_source.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

/// A part of a fused tensor: rows of its matrix, or elements of its bias.
struct FusedPart {
  std::string_view name;
  int64_t size;
};

class Splitter {
 public:
  Splitter(std::span<const HostTensor> tensors, const ModelConfig& config, std::string_view model)
      : tensors_(tensors), config_(config), model_(model) {
    for (const HostTensor& tensor : tensors)
      names_.insert(tensor.name);
  }

  std::vector<HostTensor> run() {
    for (const HostTensor& tensor : tensors_) {
      const std::string_view name = tensor.name;
      const size_t dot = name.rfind('.');
      const std::string_view stem = name.substr(0, dot == std::string_view::npos ? 0 : dot);
      const std::string_view kind = name.substr(stem.size());  // ".weight" or ".bias"
      const int32_t layer = layer_of_tensor(name);
      if (!name.starts_with("blk.")) {
        all_.push_back(tensor);
      } else if (stem.ends_with(".attn_qkv") && !config_.is_delta_net(layer)) {
        split(tensor, stem.substr(0, stem.size() - 8), kind,
              {{"attn_q", config_.gated_q_size(layer)},
               {"attn_k", config_.kv_size(layer)},
               {"attn_v", config_.kv_size(layer)}});
      } else if (stem.ends_with(".ffn_gate_up_exps") && kind == ".weight") {
        split(tensor, stem.substr(0, stem.size() - 16), kind,
              {{"ffn_gate_exps", config_.expert_ffn_size}, {"ffn_up_exps", config_.expert_ffn_size}});
      } else if (stem.ends_with(".ffn_up") && holds_gate(tensor, stem.substr(0, stem.size() - 6), kind)) {
        split(tensor, stem.substr(0, stem.size() - 6), kind,
              {{"ffn_gate", config_.ffn_size}, {"ffn_up", config_.ffn_size}});
      } else {
        all_.push_back(tensor);
      }
    }
    return std::move(all_);
  }

 private:
  static bool is_vector(const HostTensor& tensor) { return tensor.rows == 1 && tensor.count == 1; }
  static int64_t size_of(const HostTensor& tensor) { return is_vector(tensor) ? tensor.cols : tensor.rows; }

  bool holds_gate(const HostTensor& tensor, std::string_view block, std::string_view kind) const {
    return config_.architecture.has_gate && !config_.is_moe() &&
           size_of(tensor) == 2 * int64_t{config_.ffn_size} &&
           !names_.contains(fmt::format("{}ffn_gate{}", block, kind));
  }

  void split(const HostTensor& tensor, std::string_view block, std::string_view kind,
             std::initializer_list<FusedPart> parts) {
    int64_t sum = 0;
    for (const FusedPart& part : parts)
      sum += part.size;
    const bool has_experts = parts.begin()->name.ends_with("_exps");
    if ((tensor.count != 1 && !has_experts) || size_of(tensor) != sum) {
      fail<FileError>("{}: tensor {}: shape {}, expected {} rows of its parts together", model_,
                      printable(tensor.name), tensor.shape(), sum);
    }
    auto* next = static_cast<const std::byte*>(tensor.data);
    for (const FusedPart& part : parts) {
      HostTensor piece = tensor;
      piece.name = fmt::format("{}{}{}", block, part.name, kind);
      piece.data = next;
      (is_vector(tensor) ? piece.cols : piece.rows) = part.size;
      if (tensor.count > 1) piece.matrix_stride = tensor.stride_of_matrices();
      if (next != nullptr)
        next += is_vector(tensor) ? piece.bytes() : static_cast<size_t>(part.size) * tensor.stride_of_rows();
      all_.push_back(std::move(piece));
    }
  }

  std::span<const HostTensor> tensors_;
  const ModelConfig& config_;
  std::string_view model_;
  std::unordered_set<std::string_view> names_;
  std::vector<HostTensor> all_;
};

}  // namespace

std::vector<HostTensor> split_fused_tensors(std::span<const HostTensor> tensors, const ModelConfig& config,
                                            std::string_view model) {
  return Splitter(tensors, config, model).run();
}

}  // namespace minfer
