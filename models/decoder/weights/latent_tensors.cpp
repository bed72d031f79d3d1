#include "models/decoder/weights/latent_tensors.h"

#include <cstring>
#include <string>
#include <utility>

#include <fmt/ranges.h>

#include "kernels/cpu/lanes/isa.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/error.h"
#include "kernels/half.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr std::string_view kTogether = ".attn_kv_b.weight";

class LatentSplitter {
 public:
  LatentSplitter(const ModelConfig& config, std::string_view model) : config_(config), model_(model) {}

  LatentTensors run(std::vector<HostTensor> tensors) {
    for (HostTensor& tensor : tensors) {
      if (tensor.name.starts_with("blk.") && tensor.name.ends_with(kTogether)) {
        split(tensor);
      } else {
        all_.tensors.push_back(std::move(tensor));
      }
    }
    return std::move(all_);
  }

 private:
  int64_t key_rows() const { return config_.latent.key_size - config_.rotary_size; }

  void split(const HostTensor& tensor) {
    const LatentAttention& latent = config_.latent;
    const int64_t rows_of_head = key_rows() + latent.value_size;
    const int64_t rows = config_.num_heads * rows_of_head;
    if (tensor.count != 1 || tensor.rows != rows || tensor.cols != latent.kv_rank) {
      fail<FileError>(
          "{}: tensor {}: shape {}, expected [{}, {}] from {}.attention.head_count, key_length, "
          "value_length and kv_lora_rank",
          model_, printable(tensor.name), tensor.shape(), rows, latent.kv_rank, config_.architecture.name);
    }
    const std::string block = tensor.name.substr(0, tensor.name.size() - kTogether.size());
    HostTensor values = tensor;
    values.name = block + ".attn_v_b.weight";
    values.count = config_.num_heads;
    values.rows = latent.value_size;
    values.matrix_stride = static_cast<size_t>(rows_of_head) * tensor.stride_of_rows();
    if (tensor.data != nullptr) values.data = tensor.row(0, key_rows());
    HostTensor keys{.name = block + ".attn_k_b.weight",
                    .dtype = is_quantised(tensor.dtype) ? DType::f16 : tensor.dtype,
                    .count = config_.num_heads,
                    .rows = latent.kv_rank,
                    .cols = key_rows()};
    if (tensor.data != nullptr) {
      std::vector<std::byte>& memory = all_.converted.emplace_back(keys.bytes());
      transpose(tensor, rows_of_head, keys, memory.data());
      keys.data = memory.data();
    }
    all_.tensors.push_back(std::move(keys));
    all_.tensors.push_back(std::move(values));
  }

  /// keys[head][column][row] = tensor[head * rows_of_head + row][column].
  static void transpose(const HostTensor& tensor, int64_t rows_of_head, const HostTensor& keys,
                        std::byte* out) {
    std::vector<float> row(static_cast<size_t>(tensor.cols));
    const cpu::Isa isa = cpu::selected_isa();
    for (int64_t head = 0; head < keys.count; ++head) {
      for (int64_t r = 0; r < keys.cols; ++r) {
        cpu::dequantise_row(tensor.row(0, head * rows_of_head + r), tensor.dtype, tensor.cols, isa,
                            row.data());
        for (int64_t c = 0; c < keys.rows; ++c)
          store(row[static_cast<size_t>(c)], keys.dtype, out, (head * keys.rows + c) * keys.cols + r);
      }
    }
  }

  static void store(float value, DType dtype, std::byte* out, int64_t index) {
    if (dtype == DType::f32) {
      std::memcpy(out + index * int64_t{sizeof value}, &value, sizeof value);
    } else {
      const uint16_t half = dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
      std::memcpy(out + index * int64_t{sizeof half}, &half, sizeof half);
    }
  }

  const ModelConfig& config_;
  std::string_view model_;
  LatentTensors all_;
};

}  // namespace

LatentTensors split_latent_tensors(std::vector<HostTensor> tensors, const ModelConfig& config,
                                   std::string_view model) {
  if (!config.is_latent()) return {std::move(tensors), {}};
  return LatentSplitter(config, model).run(std::move(tensors));
}

}  // namespace minfer
