#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "kernels/tensor_view.h"
#include "models/decoder/config/config.h"

namespace minfer {

/// The tensors of a model, with fused tensors of some converters split into views of rows: attn_qkv into attn_q, attn_k and attn_v; ffn_up
/// of twice the feed-forward size into ffn_gate, its first half, and ffn_up (Phi-3, GLM-4); ffn_gate_up_exps likewise, by expert; and the
/// matrices of altup_proj and altup_unembd_proj (Gemma 3n). Biases are split like weights. `model` names the file. Throws
/// FileError naming a tensor whose rows do not equal its parts' rows together.
std::vector<HostTensor> split_fused_tensors(std::span<const HostTensor> tensors, const ModelConfig& config,
                                            std::string_view model);

/// The tensors of a model, and the memory of tensors without bytes in the file.
struct ConvertedTensors {
  std::vector<HostTensor> tensors;
  std::vector<std::vector<std::byte>> converted;
};

/// The tensors of a file, in the form that converters write since April 2025. Older files have attn_kv_b: for each head, rows of keys
/// [key_size - rotary_size, kv_rank], then rows of values. The value rows are attn_v_b unchanged. The key rows, transposed, become
/// attn_k_b in new memory: in their type if that is plain, else in f16, 16 MiB a layer of DeepSeek V3. `model` names the file. Throws
/// FileError naming a tensor of another shape.
ConvertedTensors split_latent_tensors(std::vector<HostTensor> tensors, const ModelConfig& config,
                                      std::string_view model);

/// Joins the convolutions of q, k and v in layers of Kimi delta attention: ssm_conv1d_q, _k and _v become ssm_conv1d, [channels,
/// conv_size] f32 in new memory. Throws FileError naming a tensor that is missing or of another shape.
void join_convolutions(const ModelConfig& config, std::string_view model, ConvertedTensors& all);

}  // namespace minfer
