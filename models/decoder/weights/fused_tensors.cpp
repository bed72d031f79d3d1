#include "models/decoder/weights/fused_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <unordered_set>
#include <utility>

#include <fmt/ranges.h>

#include "kernels/base/error.h"
#include "kernels/cpu/lanes/isa.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/half.h"
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
      if (config_.num_streams > 1 && (stem == "altup_proj" || stem == "altup_unembd_proj")) {
        split_matrices(tensor, stem);
      } else if (!name.starts_with("blk.")) {
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
              {{"ffn_gate", size_of(tensor) / 2}, {"ffn_up", size_of(tensor) / 2}});
      } else if (stem.ends_with(".nextn.eh_proj")) {
        split_columns(tensor, stem.substr(0, stem.size() - 7), {"embedding_proj", "hidden_proj"});
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
           size_of(tensor) == 2 * int64_t{config_.ffn_size_of(layer_of_tensor(tensor.name))} &&
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

  /// Each matrix of one for each stream but the first.
  void split_matrices(const HostTensor& tensor, std::string_view stem) {
    HostTensor piece = tensor;
    piece.count = 1;
    if (tensor.count != config_.num_streams - 1)
      fail<FileError>("{}: tensor {}: shape {}, expected {} matrices from {}.altup.num_inputs", model_,
                      printable(tensor.name), tensor.shape(), config_.num_streams - 1,
                      config_.architecture.name);
    for (int64_t i = 0; i < tensor.count; ++i) {
      piece.name = fmt::format("{}.{}.weight", stem, i);
      if (tensor.data != nullptr) piece.data = tensor.row(i, 0);
      all_.push_back(piece);
    }
  }

  /// Two matrices side by side.
  void split_columns(const HostTensor& tensor, std::string_view block,
                     const std::array<std::string_view, 2>& parts) {
    HostTensor piece = tensor;
    piece.cols = tensor.cols / 2;
    piece.row_stride = tensor.stride_of_rows();
    if (tensor.count != 1 || tensor.cols % (2 * traits(tensor.dtype).block_elements) != 0)
      fail<FileError>("{}: tensor {}: shape {}, expected two matrices of whole blocks of {} side by side",
                      model_, printable(tensor.name), tensor.shape(), name(tensor.dtype));
    for (const std::string_view part : parts) {
      piece.name = fmt::format("{}{}.weight", block, part);
      all_.push_back(piece);
      if (piece.data != nullptr)
        piece.data = static_cast<const std::byte*>(piece.data) + row_bytes(tensor.dtype, piece.cols);
    }
  }

  std::span<const HostTensor> tensors_;
  const ModelConfig& config_;
  std::string_view model_;
  std::unordered_set<std::string_view> names_;
  std::vector<HostTensor> all_;
};

constexpr std::string_view kTogether = ".attn_kv_b.weight";

void store(float value, DType dtype, std::byte* out, int64_t index) {
  if (dtype == DType::f32) {
    std::memcpy(out + index * int64_t{sizeof value}, &value, sizeof value);
  } else {
    const uint16_t half = dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
    std::memcpy(out + index * int64_t{sizeof half}, &half, sizeof half);
  }
}

/// keys[head][column][row] = tensor[head * rows_of_head + row][column].
void transpose(const HostTensor& tensor, int64_t rows_of_head, const HostTensor& keys, std::byte* out) {
  std::vector<float> row(static_cast<size_t>(tensor.cols));
  const cpu::Isa isa = cpu::selected_isa();
  for (int64_t head = 0; head < keys.count; ++head) {
    for (int64_t r = 0; r < keys.cols; ++r) {
      cpu::dequantise_row(tensor.row(0, head * rows_of_head + r), tensor.dtype, tensor.cols, isa, row.data());
      for (int64_t c = 0; c < keys.rows; ++c)
        store(row[static_cast<size_t>(c)], keys.dtype, out, (head * keys.rows + c) * keys.cols + r);
    }
  }
}

void split_latent(const HostTensor& tensor, const ModelConfig& config, std::string_view model,
                  ConvertedTensors& all) {
  const LatentAttention& latent = config.latent;
  const int64_t key_rows = latent.key_size - config.rotary_size;
  const int64_t rows_of_head = key_rows + latent.value_size;
  const int64_t rows = config.num_heads * rows_of_head;
  if (tensor.count != 1 || tensor.rows != rows || tensor.cols != latent.kv_rank) {
    fail<FileError>(
        "{}: tensor {}: shape {}, expected [{}, {}] from {}.attention.head_count, key_length, "
        "value_length and kv_lora_rank",
        model, printable(tensor.name), tensor.shape(), rows, latent.kv_rank, config.architecture.name);
  }
  const std::string block = tensor.name.substr(0, tensor.name.size() - kTogether.size());
  HostTensor values = tensor;
  values.name = block + ".attn_v_b.weight";
  values.count = config.num_heads;
  values.rows = latent.value_size;
  values.matrix_stride = static_cast<size_t>(rows_of_head) * tensor.stride_of_rows();
  if (tensor.data != nullptr) values.data = tensor.row(0, key_rows);
  HostTensor keys{.name = block + ".attn_k_b.weight",
                  .dtype = is_quantised(tensor.dtype) ? DType::f16 : tensor.dtype,
                  .count = config.num_heads,
                  .rows = latent.kv_rank,
                  .cols = key_rows};
  if (tensor.data != nullptr) {
    std::vector<std::byte>& memory = all.converted.emplace_back(keys.bytes());
    transpose(tensor, rows_of_head, keys, memory.data());
    keys.data = memory.data();
  }
  all.tensors.push_back(std::move(keys));
  all.tensors.push_back(std::move(values));
}

/// Removes the convolution of q, k or v from `tensors`; returns it as one matrix. A file has a matrix of one row for each channel.
HostTensor take_convolution(const ModelConfig& config, std::string_view model, int32_t layer,
                            std::string_view part, std::vector<HostTensor>& tensors) {
  const DeltaNetShape& shape = config.delta_net;
  const int64_t channels = part == "v" ? shape.value_columns() : shape.key_columns();
  const std::string name = fmt::format("blk.{}.ssm_conv1d_{}.weight", layer, part);
  const auto found = std::ranges::find(tensors, name, &HostTensor::name);
  if (found == tensors.end()) fail<FileError>("{}: tensor {} is missing", model, name);
  HostTensor tensor = *found;
  if (tensor.rows == 1) std::swap(tensor.rows, tensor.count);
  if (tensor.count != 1 || tensor.rows != channels || tensor.cols != shape.conv_size) {
    fail<FileError>(
        "{}: tensor {}: shape {}, expected [{}, 1, {}] from {}.attention.head_count, kda.head_dim and "
        "ssm.conv_kernel",
        model, name, found->shape(), channels, shape.conv_size, config.architecture.name);
  }
  tensors.erase(found);
  return tensor;
}

}  // namespace

std::vector<HostTensor> split_fused_tensors(std::span<const HostTensor> tensors, const ModelConfig& config,
                                            std::string_view model) {
  return Splitter(tensors, config, model).run();
}

ConvertedTensors split_latent_tensors(std::vector<HostTensor> tensors, const ModelConfig& config,
                                      std::string_view model) {
  if (!config.is_latent()) return {std::move(tensors), {}};
  ConvertedTensors all;
  for (HostTensor& tensor : tensors) {
    if (tensor.name.starts_with("blk.") && tensor.name.ends_with(kTogether)) {
      split_latent(tensor, config, model, all);
    } else {
      all.tensors.push_back(std::move(tensor));
    }
  }
  return all;
}

void join_convolutions(const ModelConfig& config, std::string_view model, ConvertedTensors& all) {
  if (!config.delta_net.decays_rows) return;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.is_delta_net(layer)) continue;
    const HostTensor parts[] = {take_convolution(config, model, layer, "q", all.tensors),
                                take_convolution(config, model, layer, "k", all.tensors),
                                take_convolution(config, model, layer, "v", all.tensors)};
    HostTensor joined{.name = fmt::format("blk.{}.ssm_conv1d.weight", layer),
                      .rows = config.delta_net.channels(),
                      .cols = config.delta_net.conv_size};
    std::vector<std::byte>& memory = all.converted.emplace_back(joined.bytes());
    joined.data = memory.data();
    auto* out = reinterpret_cast<float*>(memory.data());
    for (const HostTensor& part : parts) {
      for (int64_t row = 0; row < part.rows; ++row, out += part.cols)
        cpu::dequantise_row(part.row(0, row), part.dtype, part.cols, cpu::selected_isa(), out);
    }
    all.tensors.push_back(std::move(joined));
  }
}

}  // namespace minfer
