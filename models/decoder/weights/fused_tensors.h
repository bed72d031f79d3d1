#pragma once

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

}  // namespace minfer
