#include "tests/support/models/tiny_model.h"

#include <cmath>
#include <limits>

#include "kernels/half.h"
#include "models/decoder/config/architecture.h"
#include "tests/support/models/vocabularies.h"
#include "tests/support/random_data.h"

namespace minfer::test {
namespace {

void put_plain(ByteWriter& writer, DType dtype, float value) {
  switch (dtype) {
    case DType::f16:
      return writer.put(f32_to_f16(value));
    case DType::bf16:
      return writer.put(f32_to_bf16(value));
    default:
      return writer.put(value);
  }
}

/// Random values as `tensor` stores them: deviation 1 / sqrt(cols), vectors around 1.
std::vector<std::byte> random_tensor(const ModelParts::TensorPart& tensor, uint64_t seed) {
  const auto cols = static_cast<int64_t>(tensor.dims[0]);
  int64_t rows = 1;
  for (size_t i = 1; i < tensor.dims.size(); ++i)
    rows *= static_cast<int64_t>(tensor.dims[i]);
  ByteWriter writer;
  if (is_quantised(tensor.dtype)) {
    const std::vector<uint8_t> blocks = random_weights(tensor.dtype, rows, cols, seed);
    writer.put_bytes(std::as_bytes(std::span(blocks)));
    return writer.bytes();
  }
  const bool vector = tensor.dims.size() == 1;
  for (const float value :
       normal_values(rows * cols, seed, vector ? 0.1f : 1.0f / std::sqrt(static_cast<float>(cols)))) {
    put_plain(writer, tensor.dtype, vector ? 1.0f + value : value);
  }
  return writer.bytes();
}

void add_tokenizer(ModelParts& model, const Vocabulary& vocabulary) {
  std::vector<int32_t> types;
  for (const TokenType type : vocabulary.types)
    types.push_back(static_cast<int32_t>(type));
  model.keys["tokenizer.ggml.model"] = std::string("llama");
  model.keys["tokenizer.ggml.tokens"] = vocabulary.tokens;
  model.keys["tokenizer.ggml.token_type"] = types;
  model.keys["tokenizer.ggml.scores"] = vocabulary.scores;
}

void add_feed_forward(ModelParts& model, const Architecture& family, const std::string& blk,
                      uint64_t experts) {
  if (experts == 0) {
    if (family.has_gate) model.tensors[blk + "ffn_gate.weight"] = {DType::f32, {32, 64}, {}};
    model.tensors[blk + "ffn_up.weight"] = {DType::f32, {32, 64}, {}};
    model.tensors[blk + "ffn_down.weight"] = {DType::f32, {64, 32}, {}};
    return;
  }
  model.tensors[blk + "ffn_gate_inp.weight"] = {DType::f32, {32, experts}, {}};
  if (family.has_gate) model.tensors[blk + "ffn_gate_exps.weight"] = {DType::f32, {32, 64, experts}, {}};
  model.tensors[blk + "ffn_up_exps.weight"] = {DType::f32, {32, 64, experts}, {}};
  model.tensors[blk + "ffn_down_exps.weight"] = {DType::f32, {64, 32, experts}, {}};
  if (family.choice_bias) model.tensors[blk + "exp_probs_b.bias"] = {DType::f32, {experts}, {}};
  if (!family.shared_gate && family.shared_experts == 0) return;
  const uint64_t shared = family.shared_gate ? 48u : 64u;
  model.tensors[blk + "ffn_gate_shexp.weight"] = {DType::f32, {32, shared}, {}};
  model.tensors[blk + "ffn_up_shexp.weight"] = {DType::f32, {32, shared}, {}};
  model.tensors[blk + "ffn_down_shexp.weight"] = {DType::f32, {shared, 32}, {}};
  if (!family.shared_gate) return;
  model.tensors[blk + "ffn_gate_inp_shexp.weight"] = {DType::f32, {32}, {}};
}

void add_norms(ModelParts& model, const Architecture& family, const std::string& blk, bool attends) {
  const auto add = [&](std::string_view name) {
    model.tensors[fmt::format("{}{}.weight", blk, name)] = {DType::f32, {32}, {}};
  };
  if (family.norm_placement != NormPlacement::after) {
    add("attn_norm");
    if (family.parallel_blocks != ParallelBlocks::always && !family.has_single_blocks)
      add(family.ffn_norm_tensor);
  }
  if (family.norm_placement != NormPlacement::before) {
    add("post_attention_norm");
    add("post_ffw_norm");
  }
  if (!attends || family.qk_norm == QkNorm::none || family.qk_norm == QkNorm::rotated_head) return;
  const bool row = family.qk_norm == QkNorm::row;
  model.tensors[blk + "attn_q_norm.weight"] = {DType::f32, {row ? 32u : 8u}, {}};
  model.tensors[blk + "attn_k_norm.weight"] = {DType::f32, {row ? 16u : 8u}, {}};
  if (family.norm != NormKind::layer) return;
  model.tensors[blk + "attn_q_norm.weight"].dims = {8, 4};
  model.tensors[blk + "attn_k_norm.weight"].dims = {8, 2};
}

/// Adds latent attention: heads of 8 + 4 elements, values of 8, a rank of 16 for both.
void add_latent_attention(ModelParts& model, const std::string& blk) {
  model.tensors[blk + "attn_q.weight"] = {DType::f32, {32, 48}, {}};
  model.tensors[blk + "attn_kv_a_mqa.weight"] = {DType::f32, {32, 20}, {}};
  model.tensors[blk + "attn_kv_a_norm.weight"] = {DType::f32, {16}, {}};
  model.tensors[blk + "attn_k_b.weight"] = {DType::f32, {8, 16, 4}, {}};
  model.tensors[blk + "attn_v_b.weight"] = {DType::f32, {16, 8, 4}, {}};
  model.tensors[blk + "attn_output.weight"] = {DType::f32, {32, 32}, {}};
}

/// Adds an indexer of three heads of 8 elements; q is then of a rank of 12.
void add_indexer(ModelParts& model, const std::string& blk) {
  model.tensors.erase(blk + "attn_q.weight");
  model.tensors[blk + "attn_q_a.weight"] = {DType::f32, {32, 12}, {}};
  model.tensors[blk + "attn_q_a_norm.weight"] = {DType::f32, {12}, {}};
  model.tensors[blk + "attn_q_b.weight"] = {DType::f32, {12, 48}, {}};
  model.tensors[blk + "indexer.attn_q_b.weight"] = {DType::f32, {12, 24}, {}};
  model.tensors[blk + "indexer.attn_k.weight"] = {DType::f32, {32, 8}, {}};
  model.tensors[blk + "indexer.proj.weight"] = {DType::f32, {32, 3}, {}};
  model.tensors[blk + "indexer.k_norm.weight"] = {DType::f32, {8}, {}};
  model.tensors[blk + "indexer.k_norm.bias"] = {DType::f32, {8}, {}};
}

void add_indexer_keys(ModelParts& model, const std::string& arch) {
  model.keys[arch + ".attention.q_lora_rank"] = 12u;
  model.keys[arch + ".attention.indexer.head_count"] = 3u;
  model.keys[arch + ".attention.indexer.key_length"] = 8u;
  model.keys[arch + ".attention.indexer.top_k"] = 5u;
}

void add_latent_keys(ModelParts& model, const std::string& arch) {
  model.keys[arch + ".attention.head_count_kv"] = 1u;
  model.keys[arch + ".attention.kv_lora_rank"] = 16u;
  model.keys[arch + ".attention.key_length"] = 20u;
  model.keys[arch + ".attention.value_length"] = 16u;
  model.keys[arch + ".attention.key_length_mla"] = 12u;
  model.keys[arch + ".attention.value_length_mla"] = 8u;
  model.keys[arch + ".rope.dimension_count"] = 4u;
}

/// Adds a delta net: two key heads of 6 elements, four value heads of 6, a convolution of 3 inputs.
void add_delta_net(ModelParts& model, const Architecture& family, const std::string& blk) {
  model.tensors[blk + "attn_qkv.weight"] = {DType::f32, {32, 48}, {}};
  model.tensors[blk + "attn_gate.weight"] = {DType::f32, {32, 24}, {}};
  if (family.values_in_turn) {
    model.tensors[blk + "ssm_beta.weight"] = {DType::f32, {32, 4}, {}};
    model.tensors[blk + "ssm_alpha.weight"] = {DType::f32, {32, 4}, {}};
  } else {
    model.tensors[blk + "ssm_ba.weight"] = {DType::f32, {32, 8}, {}};
  }
  model.tensors[blk + "ssm_conv1d.weight"] = {DType::f32, {3, 48}, {}};
  model.tensors[blk + "ssm_dt.bias"] = {DType::f32, {4}, {}};
  ByteWriter decay;
  for (const float value : {-0.1f, -0.5f, -1.0f, -2.0f})
    decay.put(value);
  model.tensors[blk + "ssm_a"] = {DType::f32, {4}, decay.bytes()};
  model.tensors[blk + "ssm_norm.weight"] = {DType::f32, {6}, {}};
  model.tensors[blk + "ssm_out.weight"] = {DType::f32, {24, 32}, {}};
}

/// The first of two layers is a delta net.
void add_delta_keys(ModelParts& model, const std::string& arch) {
  model.keys[arch + ".full_attention_interval"] = 2u;
  model.keys[arch + ".ssm.conv_kernel"] = 3u;
  model.keys[arch + ".ssm.state_size"] = 6u;
  model.keys[arch + ".ssm.group_count"] = 2u;
  model.keys[arch + ".ssm.time_step_rank"] = 4u;
  model.keys[arch + ".ssm.inner_size"] = 24u;
}

/// Adds Kimi delta attention: four heads of 6 elements, a convolution of 3 inputs.
void add_kimi_delta(ModelParts& model, const std::string& blk) {
  for (const char* part : {"q", "k", "v"}) {
    model.tensors[fmt::format("{}attn_{}.weight", blk, part)] = {DType::f32, {32, 24}, {}};
    model.tensors[fmt::format("{}ssm_conv1d_{}.weight", blk, part)] = {DType::f32, {3, 1, 24}, {}};
  }
  for (const char* part : {"f", "g"}) {
    model.tensors[fmt::format("{}ssm_{}_a.weight", blk, part)] = {DType::f32, {32, 6}, {}};
    model.tensors[fmt::format("{}ssm_{}_b.weight", blk, part)] = {DType::f32, {6, 24}, {}};
  }
  model.tensors[blk + "ssm_beta.weight"] = {DType::f32, {32, 4}, {}};
  model.tensors[blk + "ssm_dt.bias"] = {DType::f32, {24}, {}};
  ByteWriter decay;
  for (const float value : {-0.1f, -0.5f, -1.0f, -2.0f})
    decay.put(value);
  model.tensors[blk + "ssm_a"] = {DType::f32, {1, 4}, decay.bytes()};
  model.tensors[blk + "ssm_norm.weight"] = {DType::f32, {6}, {}};
  model.tensors[blk + "attn_output.weight"] = {DType::f32, {24, 32}, {}};
}

/// The first layer is Kimi delta attention.
void add_kimi_keys(ModelParts& model, const std::string& arch) {
  model.keys[arch + ".attention.head_count_kv"] = std::vector<int32_t>{0, 1};
  model.keys[arch + ".attention.value_length"] = 8u;
  model.keys[arch + ".kda.head_dim"] = 6u;
  model.keys[arch + ".ssm.conv_kernel"] = 3u;
}

/// Adds Mamba-2: four heads of 6 elements in two groups with states of 6, a convolution of 3 inputs.
void add_mamba(ModelParts& model, const std::string& blk) {
  model.tensors[blk + "ssm_in.weight"] = {DType::f32, {32, 24 + 48 + 4}, {}};
  model.tensors[blk + "ssm_conv1d.weight"] = {DType::f32, {3, 48}, {}};
  model.tensors[blk + "ssm_conv1d.bias"] = {DType::f32, {48}, {}};
  model.tensors[blk + "ssm_dt.bias"] = {DType::f32, {4}, {}};
  ByteWriter decay;
  for (const float value : {-0.1f, -0.5f, -1.0f, -2.0f})
    decay.put(value);
  model.tensors[blk + "ssm_a"] = {DType::f32, {1, 4}, decay.bytes()};
  model.tensors[blk + "ssm_d"] = {DType::f32, {1, 4}, {}};
  model.tensors[blk + "ssm_norm.weight"] = {DType::f32, {12, 2}, {}};
  model.tensors[blk + "ssm_out.weight"] = {DType::f32, {24, 32}, {}};
}

/// The first layer is Mamba-2. Of single blocks the second one attends and a third one is a feed-forward block.
void add_mamba_keys(ModelParts& model, const Architecture& family, const std::string& arch) {
  add_delta_keys(model, arch);
  model.keys.erase(arch + ".full_attention_interval");
  model.keys[arch + ".attention.head_count_kv"] =
      family.has_single_blocks ? std::vector<int32_t>{0, 2, 0} : std::vector<int32_t>{0, 2};
  if (!family.has_single_blocks) return;
  model.keys[arch + ".block_count"] = 3u;
  model.keys[arch + ".feed_forward_length"] = std::vector<int32_t>{0, 0, 64};
}

/// Adds a short convolution over three tokens.
void add_short_conv(ModelParts& model, const std::string& blk) {
  model.tensors[blk + "shortconv.in_proj.weight"] = {DType::f32, {32, 96}, {}};
  model.tensors[blk + "shortconv.conv.weight"] = {DType::f32, {3, 32}, {}};
  model.tensors[blk + "shortconv.out_proj.weight"] = {DType::f32, {32, 32}, {}};
}

void add_attention(ModelParts& model, const Architecture& family, const std::string& blk) {
  model.tensors[blk + "attn_q.weight"] = {DType::f32, {32, family.gates_heads ? 64u : 32u}, {}};
  model.tensors[blk + "attn_k.weight"] = {DType::f32, {32, 16}, {}};
  model.tensors[blk + "attn_v.weight"] = {DType::f32, {32, 16}, {}};
  model.tensors[blk + "attn_output.weight"] = {DType::f32, {32, 32}, {}};
  if (family.qkv_bias) {
    model.tensors[blk + "attn_q.bias"] = {DType::f32, {32}, {}};
    model.tensors[blk + "attn_k.bias"] = {DType::f32, {16}, {}};
    model.tensors[blk + "attn_v.bias"] = {DType::f32, {16}, {}};
  }
  if (family.attn_sinks) model.tensors[blk + "attn_sinks.weight"] = {DType::f32, {4}, {}};
}

/// Adds what mixes three residual streams, LAuReL of rank 5, and an input of 4 elements.
void add_streams(ModelParts& model, const std::string& blk) {
  model.tensors[blk + "altup_router.weight"] = {DType::f32, {32, 3}, {}};
  model.tensors[blk + "altup_predict_coef.weight"] = {DType::f32, {3, 9}, {}};
  model.tensors[blk + "altup_correct_coef.weight"] = {DType::f32, {3, 3}, {}};
  model.tensors[blk + "laurel_l.weight"] = {DType::f32, {32, 5}, {}};
  model.tensors[blk + "laurel_r.weight"] = {DType::f32, {5, 32}, {}};
  model.tensors[blk + "inp_gate.weight"] = {DType::f32, {32, 4}, {}};
  model.tensors[blk + "proj.weight"] = {DType::f32, {4, 32}, {}};
  for (const char* vector : {"altup_router_norm", "altup_correct_scale", "laurel_post_norm", "post_norm"})
    model.tensors[fmt::format("{}{}.weight", blk, vector)] = {DType::f32, {32}, {}};
}

/// The gates of the first layer are cut.
void add_streams_of_model(ModelParts& model, const std::string& arch, uint64_t vocab_size) {
  model.keys[arch + ".altup.num_inputs"] = 3u;
  model.keys[arch + ".altup.active_idx"] = 0u;
  model.keys[arch + ".embedding_length_per_layer_input"] = 4u;
  model.keys[arch + ".activation_sparsity_scale"] =
      std::vector<float>{1.25f, -std::numeric_limits<float>::infinity()};
  model.tensors["altup_proj.weight"] =
      model.tensors["altup_unembd_proj.weight"] = {DType::f32, {32, 32, 2}, {}};
  model.tensors["per_layer_token_embd.weight"] = {DType::f32, {8, vocab_size}, {}};
  model.tensors["per_layer_model_proj.weight"] = {DType::f32, {32, 8}, {}};
  model.tensors["per_layer_proj_norm.weight"] = {DType::f32, {4}, {}};
}

void add_layer(ModelParts& model, const Architecture& family, const std::string& blk, uint64_t experts) {
  const bool is_first = blk == "blk.0.";
  const bool is_delta_net = family.delta_period > 0 && is_first;
  const bool is_short_conv = family.has_short_convs && is_first;
  const bool is_mamba = family.has_mamba && is_first;
  const bool is_kimi = family.has_kimi_delta && is_first;
  const bool is_only_ffn = family.has_single_blocks && blk == "blk.2.";
  if (is_delta_net) {
    add_delta_net(model, family, blk);
  } else if (is_mamba) {
    add_mamba(model, blk);
  } else if (is_kimi) {
    add_kimi_delta(model, blk);
  } else if (is_only_ffn) {
    // Nothing stands in front of it.
  } else if (is_short_conv) {
    add_short_conv(model, blk);
  } else {
    family.has_latent_attention ? add_latent_attention(model, blk) : add_attention(model, family, blk);
    if (family.has_indexer) add_indexer(model, blk);
  }
  if (family.has_streams) add_streams(model, blk);
  add_norms(model, family, blk, !is_delta_net && !is_short_conv && !is_mamba && !is_only_ffn);
  if (!family.has_single_blocks || is_only_ffn) add_feed_forward(model, family, blk, experts);
}

}  // namespace

GgufBuilder ModelParts::builder() const {
  GgufBuilder builder;
  for (const auto& [key, value] : keys)
    std::visit([&, &key = key](const auto& typed) { builder.add(key, typed); }, value);
  uint64_t seed = 1;
  for (const auto& [name, tensor] : tensors) {
    builder.tensor(name, tensor.dtype, tensor.dims,
                   tensor.data.empty() ? random_tensor(tensor, seed) : tensor.data);
    ++seed;
  }
  return builder;
}

ModelParts tiny_model(std::string_view architecture, int32_t experts) {
  const std::string arch(architecture);
  const Vocabulary vocabulary = small_sentencepiece_vocabulary();
  const auto vocab_size = static_cast<uint64_t>(vocabulary.size());
  ModelParts model;
  model.keys["general.architecture"] = arch;
  model.keys[arch + ".context_length"] = 64u;
  model.keys[arch + ".embedding_length"] = 32u;
  model.keys[arch + ".block_count"] = 2u;
  model.keys[arch + ".attention.head_count"] = 4u;
  model.keys[arch + ".attention.head_count_kv"] = 2u;
  model.keys[arch + ".attention.layer_norm_rms_epsilon"] = 1e-5f;
  model.keys[arch + ".feed_forward_length"] = 64u;
  const Architecture& family = find_architecture(arch);
  if (family.norm == NormKind::layer) model.keys[arch + ".attention.layer_norm_epsilon"] = 1e-5f;
  if (!family.has_gate && family.activation == Activation::Kind::xielu) {
    model.keys["xielu.alpha_p"] = std::vector<float>{0.8f, 0.9f};
    model.keys["xielu.alpha_n"] = std::vector<float>{0.7f, 0.6f};
    model.keys["xielu.beta"] = std::vector<float>{0.5f, 0.5f};
    model.keys["xielu.eps"] = std::vector<float>{-1e-6f, -1e-6f};
  }
  if (family.has_latent_attention) add_latent_keys(model, arch);
  if (family.has_indexer) add_indexer_keys(model, arch);
  if (family.delta_period > 0) add_delta_keys(model, arch);
  if (family.has_mamba) add_mamba_keys(model, family, arch);
  if (family.has_kimi_delta) add_kimi_keys(model, arch);
  if (family.has_short_convs) {
    model.keys[arch + ".shortconv.l_cache"] = 3u;
    model.keys[arch + ".attention.head_count_kv"] = std::vector<int32_t>{0, 2};
  }
  if (family.needs_window || arch == "gemma2" || arch == "gemma3")
    model.keys[arch + ".attention.sliding_window"] = 32u;
  if (experts > 0) {
    model.keys[arch + ".expert_count"] = static_cast<uint32_t>(experts);
    model.keys[arch + ".expert_used_count"] = 2u;
    model.keys[arch + "." + std::string(family.expert_ffn_key)] = 64u;
    if (family.shared_gate) model.keys[arch + ".expert_shared_feed_forward_length"] = 48u;
  }
  add_tokenizer(model, vocabulary);
  model.tensors["token_embd.weight"] = {DType::f32, {32, vocab_size}, {}};
  model.tensors[std::string(family.output_norm_tensor) + ".weight"] = {DType::f32, {32}, {}};
  model.tensors["output.weight"] = {DType::f32, {32, vocab_size}, {}};
  if (family.has_streams) add_streams_of_model(model, arch, vocab_size);
  for (const char* blk : {"blk.0.", "blk.1."})
    add_layer(model, family, blk, static_cast<uint64_t>(experts));
  if (family.has_single_blocks) add_layer(model, family, "blk.2.", static_cast<uint64_t>(experts));
  return model;
}

void set_matrix_types(ModelParts& model, std::span<const DType> types) {
  uint64_t count = 0;
  DType of_expert_gates = DType::f32;
  for (auto& [name, tensor] : model.tensors) {
    if (tensor.dims.size() == 1) continue;
    int64_t elements = 1;
    for (const uint64_t dim : tensor.dims)
      elements *= static_cast<int64_t>(dim);
    tensor.dtype = types[count % types.size()];
    if (name.ends_with("ffn_gate_exps.weight")) of_expert_gates = tensor.dtype;
    if (name.ends_with("ffn_up_exps.weight")) tensor.dtype = of_expert_gates;
    ByteWriter writer;
    for (const float value : normal_values(elements, ++count, 12.0f))
      put_plain(writer, tensor.dtype, std::round(value) / 64.0f);
    tensor.data = writer.bytes();
  }
}

}  // namespace minfer::test
