#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/tensor_view.h"
#include "models/decoder/config/config.h"

namespace minfer {

/// The tensors of a model with those that some converters write as one in their parts: attn_qkv as attn_q, attn_k and attn_v, and
/// ffn_up of twice the feed-forward size as ffn_gate, its first half, and ffn_up (Phi-3, GLM-4); ffn_gate_up_exps likewise, expert by expert. Parts are views of rows; weights and
/// biases alike. `model` names the file. Throws FileError naming a tensor that does not have as many rows as its parts together.
std::vector<HostTensor> split_fused_tensors(std::span<const HostTensor> tensors, const ModelConfig& config,
                                            std::string_view model);

/// Tensors of a model with latent attention, and the memory of those that its file has no bytes of.
struct LatentTensors {
  std::vector<HostTensor> tensors;
  std::vector<std::vector<std::byte>> converted;
};

/// The tensors of a file as converters write them since April 2025. Older ones have attn_kv_b: of each head the rows of its keys
/// [key_size - rotary_size, kv_rank], then those of its values. The latter are attn_v_b as they are; the former transposed are attn_k_b,
/// in memory of its own, in their type if that is plain, else in f16: 16 MiB a layer of DeepSeek V3. `model` names the file. Throws
/// FileError naming a tensor of another shape.
LatentTensors split_latent_tensors(std::vector<HostTensor> tensors, const ModelConfig& config,
                                   std::string_view model);

}  // namespace minfer
