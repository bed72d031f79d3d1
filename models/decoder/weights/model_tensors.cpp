#include "models/decoder/weights/model_tensors.h"

#include "models/decoder/config/eagle_head.h"

namespace minfer {

void ModelTensors::take_all(ModelWeights& weights) {
  const Dimension vocabulary{config_.vocab_size, "vocab_size"};
  weights.embedding = matrix("token_embd.weight", vocabulary, hidden());
  if (config_.layer_input_size > 0) {
    const Dimension input{config_.layer_input_size, "embedding_length_per_layer_input"};
    const Dimension inputs{config_.num_layers * input.size, input.key};
    weights.layer_embedding =
        matrix("per_layer_token_embd.weight", {config_.whole_vocab_size(), vocabulary.key}, inputs);
    weights.layer_projection = matrix("per_layer_model_proj.weight", inputs, hidden());
    weights.layer_input_norm = vector("per_layer_proj_norm.weight", input);
  }
  for (int32_t stream = 1; stream < config_.num_streams; ++stream) {
    weights.to_streams.push_back(matrix(fmt::format("altup_proj.{}.weight", stream - 1), hidden(), hidden()));
    weights.from_streams.push_back(
        matrix(fmt::format("altup_unembd_proj.{}.weight", stream - 1), hidden(), hidden()));
  }
  for (int32_t layer = 0; layer < config_.num_all_layers() - (config_.eagle ? 1 : 0); ++layer)
    weights.layers.push_back(take_layer(layer));
  const std::string output_norm(config_.architecture.output_norm_tensor);
  weights.output_norm = norm(output_norm);
  weights.output_norm_bias = norm_bias(output_norm);
  weights.output = has("output.weight") ? matrix("output.weight", vocabulary, hidden()) : weights.embedding;
  weights.output_bias = bias(std::string(kSuppressedTokens), vocabulary);
  if (config_.has_draft_layer && !config_.eagle) take_draft(weights);
  take_rope_factors(weights);
}

/// Divisors of the rotary frequencies.
void ModelTensors::take_rope_factors(ModelWeights& weights) {
  const Dimension rotated{config_.rotary_size / 2, "rope.dimension_count / 2"};
  weights.rope_frequency_factors = numbers("rope_freqs.weight", rotated, true);
  weights.rope_short_factors = numbers("rope_factors_short.weight", rotated, true);
  weights.rope_long_factors = numbers("rope_factors_long.weight", rotated, true);
}

void ModelTensors::take_draft(ModelWeights& weights) {
  const std::string nextn = fmt::format("blk.{}.nextn.", config_.num_layers);
  const Dimension vocabulary{config_.vocab_size, "vocab_size"};
  const auto own_or = [&](const char* part, const Weight& of_model) {
    return has(nextn + part) ? matrix(nextn + part, vocabulary, hidden()) : of_model;
  };
  weights.draft = {.embedding_norm = norm(nextn + "enorm"),
                   .hidden_norm = norm(nextn + "hnorm"),
                   .from_embedding = matrix(nextn + "embedding_proj.weight", hidden(), hidden()),
                   .from_hidden = matrix(nextn + "hidden_proj.weight", hidden(), hidden()),
                   .embedding = own_or("embed_tokens.weight", weights.embedding),
                   .output_norm = has(nextn + "shared_head_norm.weight") ? norm(nextn + "shared_head_norm")
                                                                         : weights.output_norm,
                   .output = own_or("shared_head_head.weight", weights.output)};
}

void ModelTensors::take_eagle(const EagleHead& head, const ModelWeights& target, EagleWeights& weights) {
  const Dimension features{int64_t{3} * head.target_hidden_size, "target_hidden_size"};
  const Dimension vocabulary{head.target_vocab_size, "vocab_size"}, drafted{config_.vocab_size};
  // A head of another size, or of another vocabulary, cannot use the target's tables: matrix() names the missing tensor.
  const bool has_size = config_.hidden_size == head.target_hidden_size;
  const bool has_tokens = has_size && head.columns.empty();
  if (head.norms_features) weights.features_norm = vector("enc.output_norm.weight", features);
  weights.from_features = matrix("fc.weight", hidden(), features);
  weights.hidden_norm = norm("blk.0.attn_norm_2");
  if (!head.columns.empty()) weights.columns = vector(std::string(kEagleColumns), vocabulary);
  ModelWeights& model = weights.model;
  model.embedding = has("token_embd.weight") || !has_size ? matrix("token_embd.weight", vocabulary, hidden())
                                                          : target.embedding;
  model.layers.push_back(take_layer(0));
  model.output_norm = norm("output_norm");
  model.output =
      has("output.weight") || !has_tokens ? matrix("output.weight", drafted, hidden()) : target.output;
  take_rope_factors(model);
}

/// The bias of a product that is split by rows; null if the file has none.
Weight ModelTensors::bias(const std::string& tensor, Dimension size, Dimension rows) {
  return has(tensor) ? vector(tensor, size, rows) : Weight{};
}

/// The bias of a product whose parts are summed over ranks; only the first rank has it.
Weight ModelTensors::bias_of_sum(const std::string& tensor, Dimension rows) {
  const Weight found = bias(tensor, hidden(), rows);
  return config_.rank.is_first() ? found : Weight{};
}

/// Null where the file has none: an RMS norm never has one.
Weight ModelTensors::norm_bias(const std::string& tensor) {
  return config_.architecture.norm == NormKind::layer ? bias(tensor + ".bias", hidden()) : Weight{};
}

LayerWeights ModelTensors::take_layer(int32_t layer) {
  const Architecture& architecture = config_.architecture;
  const bool before = architecture.norm_placement != NormPlacement::after;
  const bool after = architecture.norm_placement != NormPlacement::before;
  const std::string blk = fmt::format("blk.{}.", layer);
  const LayerConfig& of_layer = config_.layer(layer);
  LayerWeights w;
  if (before && !of_layer.is_only_ffn) {
    w.attn_norm = norm(blk + "attn_norm");
    w.attn_norm_bias = norm_bias(blk + "attn_norm");
  }
  if (config_.is_delta_net(layer))
    config_.delta_net.decays_rows ? take_kimi_delta(blk, w) : take_delta_net(blk, w);
  if (config_.is_short_conv(layer)) take_short_conv(blk, w);
  if (config_.is_mamba(layer)) take_mamba(blk, w);
  if (config_.attends(layer)) take_attention(layer, blk, w);
  if (after) w.attn_post_norm = norm(blk + "post_attention_norm");
  if (of_layer.has_ffn && before && !config_.parallel_blocks) {
    const std::string ffn_norm =
        blk + std::string(of_layer.is_only_ffn ? "attn_norm" : architecture.ffn_norm_tensor);
    w.ffn_norm = norm(ffn_norm);
    w.ffn_norm_bias = norm_bias(ffn_norm);
  }
  if (of_layer.has_ffn) of_layer.has_experts ? take_experts(layer, blk, w) : take_ffn(layer, blk, w);
  if (after) w.ffn_post_norm = norm(blk + "post_ffw_norm");
  if (const Dimension input{config_.layer_input_size, "embedding_length_per_layer_input"}; input.size > 0) {
    w.input_gate = matrix(blk + "inp_gate.weight", input, hidden());
    w.input_output = matrix(blk + "proj.weight", hidden(), input);
    w.input_post_norm = norm(blk + "post_norm");
  }
  if (config_.num_streams > 1) take_streams(blk, w.streams);
  if (architecture.scales_layers) {
    const std::vector<float> scale = numbers(blk + "layer_output_scale.weight", {1}, false);
    if (!scale.empty()) w.output_scale = scale.front();
  }
  return w;
}

void ModelTensors::take_streams(const std::string& blk, StreamWeights& w) {
  const Dimension streams{config_.num_streams, "altup.num_inputs"}, rank{config_.laurel_rank};
  w = {.router = matrix(blk + "altup_router.weight", streams, hidden()),
       .router_norm = norm(blk + "altup_router_norm"),
       .predict =
           vector(blk + "altup_predict_coef.weight", streams, {streams.size * streams.size, streams.key}),
       .correct = vector(blk + "altup_correct_coef.weight", streams, streams),
       .scale = norm(blk + "altup_correct_scale"),
       .laurel_in = matrix(blk + "laurel_l.weight", rank, hidden()),
       .laurel_out = matrix(blk + "laurel_r.weight", hidden(), rank),
       .laurel_norm = norm(blk + "laurel_post_norm")};
}

void ModelTensors::take_delta_net(const std::string& blk, LayerWeights& w) {
  refuse_older_layout(blk + "ssm_in.weight", blk + "attn_qkv.weight",
                      "queries, keys, values and gates of each head in one tensor, the layout of Qwen3-Next "
                      "files of 2025");
  const DeltaNetShape& shape = config_.delta_net;
  const Dimension channels{shape.channels(), "ssm.inner_size"};
  const Dimension values{shape.value_columns(), "ssm.inner_size"};
  const Dimension heads{shape.value_heads, "ssm.time_step_rank"};
  w.delta.qkv = matrix(blk + "attn_qkv.weight", channels, hidden());
  w.delta.z = matrix(blk + "attn_gate.weight", values, hidden());
  if (config_.architecture.values_in_turn) {
    w.delta.beta = matrix(blk + "ssm_beta.weight", heads, hidden());
    w.delta.alpha = matrix(blk + "ssm_alpha.weight", heads, hidden());
  } else {
    w.delta.beta = matrix(blk + "ssm_ba.weight", {2 * heads.size, heads.key}, hidden());
  }
  w.delta.conv =
      take(blk + "ssm_conv1d.weight", {channels, {shape.conv_size, "ssm.conv_kernel"}}, Form::transposed);
  w.delta.dt_bias = vector(blk + "ssm_dt.bias", heads);
  w.delta.decay = vector(blk + "ssm_a", heads);
  w.delta.norm = vector(blk + "ssm_norm.weight", {shape.value_size, "ssm.inner_size"});
  w.attn_output = matrix(blk + "ssm_out.weight", hidden(), values);
}

/// The weights of the first product are loaded side by side. join_convolutions() makes ssm_conv1d of a file's three tensors.
void ModelTensors::take_kimi_delta(const std::string& blk, LayerWeights& w) {
  const DeltaNetShape& shape = config_.delta_net;
  const Dimension keys{shape.key_columns(), "kda.head_dim"}, values{shape.value_columns(), "kda.head_dim"};
  const Dimension rank{config_.gate_rank(), "kda.head_dim"}, of_heads = heads(shape.value_heads);
  w.q = matrix(blk + "attn_q.weight", keys, hidden());
  w.k = matrix(blk + "attn_k.weight", keys, hidden());
  w.v = matrix(blk + "attn_v.weight", values, hidden());
  w.delta.alpha_in = matrix(blk + "ssm_f_a.weight", rank, hidden());
  w.delta.z_in = matrix(blk + "ssm_g_a.weight", rank, hidden());
  w.delta.beta = matrix(blk + "ssm_beta.weight", of_heads, hidden());
  w.delta.alpha = matrix(blk + "ssm_f_b.weight", keys, rank);
  w.delta.z = matrix(blk + "ssm_g_b.weight", values, rank);
  w.delta.conv = take(blk + "ssm_conv1d.weight",
                      {{shape.channels(), keys.key}, {shape.conv_size, "ssm.conv_kernel"}}, Form::transposed);
  w.delta.dt_bias = vector(blk + "ssm_dt.bias", keys);
  w.delta.decay = take(blk + "ssm_a", {of_heads, {1}}, Form::transposed);
  w.delta.norm = vector(blk + "ssm_norm.weight", {shape.value_size, keys.key});
  w.attn_output = matrix(blk + "attn_output.weight", hidden(), values);
}

void ModelTensors::take_short_conv(const std::string& blk, LayerWeights& w) {
  const Dimension channels{config_.conv_channels, "embedding_length"};
  const Dimension inputs{3 * channels.size, "embedding_length"};
  w.short_conv = {.in = matrix(blk + "shortconv.in_proj.weight", inputs, hidden()),
                  .in_bias = bias(blk + "shortconv.in_proj.bias", inputs),
                  .conv = take(blk + "shortconv.conv.weight",
                               {channels, {config_.conv_size, "shortconv.l_cache"}}, Form::transposed),
                  .bias = bias(blk + "shortconv.conv.bias", channels)};
  w.attn_output = matrix(blk + "shortconv.out_proj.weight", hidden(), channels);
  w.attn_output_bias = bias_of_sum(blk + "shortconv.out_proj.bias");
}

/// The converter has one number of a head in each row of ssm_a and ssm_d.
void ModelTensors::take_mamba(const std::string& blk, LayerWeights& w) {
  const DeltaNetShape& shape = config_.delta_net;
  const Dimension channels{shape.channels(), "ssm.inner_size"};
  const Dimension inputs{shape.value_columns() + shape.channels() + shape.value_heads, "ssm.inner_size"};
  const Dimension values{shape.value_columns(), "ssm.inner_size"};
  const Dimension heads{shape.value_heads, "ssm.time_step_rank"}, groups{shape.key_heads, "ssm.group_count"};
  w.mamba = {.in = matrix(blk + "ssm_in.weight", inputs, hidden()),
             .conv = take(blk + "ssm_conv1d.weight", {channels, {shape.conv_size, "ssm.conv_kernel"}},
                          Form::transposed),
             .bias = bias(blk + "ssm_conv1d.bias", channels),
             .dt_bias = vector(blk + "ssm_dt.bias", heads),
             .decay = take(blk + "ssm_a", {heads, {1}}, Form::transposed),
             .skip = take(blk + "ssm_d", {heads, {1}}, Form::transposed),
             .norm = vector(blk + "ssm_norm.weight", {values.size / groups.size, "ssm.inner_size"}, groups)};
  w.attn_output = matrix(blk + "ssm_out.weight", hidden(), values);
}

void ModelTensors::take_attention(int32_t layer, const std::string& blk, LayerWeights& w) {
  config_.is_latent() ? take_latent(blk, w) : take_qkv(layer, blk, w);
  if (config_.indexer.most_chosen > 0) take_indexer(layer, blk, w.indexer);
  w.attn_output = matrix(blk + "attn_output.weight", hidden(), heads(config_.output_size(layer)));
  w.attn_output_bias = bias_of_sum(blk + "attn_output.bias");
}

void ModelTensors::take_qkv(int32_t layer, const std::string& blk, LayerWeights& w) {
  const Architecture& architecture = config_.architecture;
  const Dimension q = heads(config_.gated_q_size(layer)), kv = kv_heads(config_.kv_size(layer));
  const bool has_keys = !config_.shares_kv(layer), has_values = has_keys && !config_.values_are_keys(layer);
  w.q = matrix(blk + "attn_q.weight", q, attention_input());
  if (has_keys) w.k = matrix(blk + "attn_k.weight", kv, attention_input());
  if (has_values) w.v = matrix(blk + "attn_v.weight", kv, attention_input());
  if (architecture.qk_norm == QkNorm::head) {
    const LayerConfig& of_layer = config_.layer(layer);
    const LayerHeads of_heads = config_.heads(layer);
    const Dimension size{of_heads.size, of_layer.heads && of_layer.window ? "attention.key_length_swa"
                                                                          : "attention.key_length"};
    const bool of_each = architecture.norm == NormKind::layer;
    w.q_norm = vector(blk + "attn_q_norm.weight", size, heads(of_each ? config_.num_heads : 1));
    if (has_keys)
      w.k_norm = vector(blk + "attn_k_norm.weight", size, kv_heads(of_each ? of_heads.kv_heads : 1));
  } else if (architecture.qk_norm == QkNorm::row) {
    w.q_norm = vector(blk + "attn_q_norm.weight", q);
    w.k_norm = vector(blk + "attn_k_norm.weight", kv);
  }
  if (!has_keys) {
    for (const char* part : {"attn_k.weight", "attn_v.weight", "attn_k_norm.weight"})
      ignore(blk + part);
  }
  if (architecture.attn_sinks) w.sinks = vector(blk + "attn_sinks.weight", heads(config_.num_heads));
  if (architecture.qkv_bias || has(blk + "attn_q.bias") || has(blk + "attn_k.bias") ||
      has(blk + "attn_v.bias")) {
    w.q_bias = vector(blk + "attn_q.bias", q);
    w.k_bias = vector(blk + "attn_k.bias", kv);
    if (has_values) w.v_bias = vector(blk + "attn_v.bias", kv);
  }
}

void ModelTensors::take_latent(const std::string& blk, LayerWeights& w) {
  const LatentAttention& latent = config_.latent;
  const Dimension q = heads(int64_t{config_.num_heads} * latent.key_size);
  const Dimension q_rank{latent.q_rank, "attention.q_lora_rank"};
  const Dimension rank{latent.kv_rank, "attention.kv_lora_rank"};
  if (latent.q_rank > 0) {
    w.q_a = matrix(blk + "attn_q_a.weight", q_rank, hidden());
    w.q_a_norm = vector(blk + "attn_q_a_norm.weight", q_rank);
    w.q = matrix(blk + "attn_q_b.weight", q, q_rank);
  } else {
    w.q = matrix(blk + "attn_q.weight", q, hidden());
  }
  w.kv_a = matrix(blk + "attn_kv_a_mqa.weight", {config_.head_size, rank.key}, hidden());
  w.kv_a_norm = vector(blk + "attn_kv_a_norm.weight", rank);
  w.k_b =
      matrix(blk + "attn_k_b.weight", rank,
             {latent.key_size - config_.rotary_size, "attention.key_length_mla"}, heads(config_.num_heads));
  w.v_b = matrix(blk + "attn_v_b.weight", {latent.value_size, "attention.value_length_mla"}, rank,
                 heads(config_.num_heads));
}

/// Some files have an indexer in layers that take another layer's choice.
void ModelTensors::take_indexer(int32_t layer, const std::string& blk, IndexerWeights& w) {
  const std::string q = blk + "indexer.attn_q_b.weight", k = blk + "indexer.attn_k.weight",
                    of_heads = blk + "indexer.proj.weight", norm = blk + "indexer.k_norm.weight",
                    norm_bias = blk + "indexer.k_norm.bias";
  if (!config_.has_indexer(layer)) {
    for (const std::string& tensor : {q, k, of_heads, norm, norm_bias})
      ignore(tensor);
    return;
  }
  const Indexer& indexer = config_.indexer;
  const Dimension heads{indexer.heads, "attention.indexer.head_count"};
  const Dimension size{indexer.key_size, "attention.indexer.key_length"};
  w.q = matrix(q, {heads.size * size.size, heads.key}, {config_.latent.q_rank, "attention.q_lora_rank"});
  w.k = matrix(k, size, hidden());
  w.heads = matrix(of_heads, heads, hidden());
  w.k_norm = vector(norm, size);
  w.k_norm_bias = vector(norm_bias, size);
}

void ModelTensors::take_ffn(int32_t layer, const std::string& blk, LayerWeights& w) {
  const Dimension size{config_.ffn_size_of(layer), "feed_forward_length"};
  if (config_.architecture.has_gate) {
    w.gate = matrix(blk + "ffn_gate.weight", size, hidden());
    w.gate_bias = bias(blk + "ffn_gate.bias", size);
  }
  w.up = matrix(blk + "ffn_up.weight", size, hidden());
  w.up_bias = bias(blk + "ffn_up.bias", size);
  w.down = matrix(blk + "ffn_down.weight", hidden(), size);
  w.down_bias = bias_of_sum(blk + "ffn_down.bias");
}

void ModelTensors::take_experts(int32_t layer, const std::string& blk, LayerWeights& w) {
  refuse_older_layout(blk + "ffn_gate.0.weight", blk + "ffn_gate_exps.weight",
                      "one tensor for each expert, the layout of Mixtral files of before April 2024");
  const Architecture& architecture = config_.architecture;
  const Dimension count{config_.num_experts, "expert_count"};
  const Dimension size{config_.expert_ffn_size, architecture.expert_ffn_key};
  w.router = matrix(blk + "ffn_gate_inp.weight", count, hidden());
  const Dimension latent{config_.expert_latent_size, "moe_latent_size"};
  const Dimension outer = latent.size > 0 ? latent : hidden();
  // CUDA's kernels for many routes read gate and up of an expert in one copy, so up lies behind gate.
  if (architecture.has_gate) w.gate = matrix(blk + "ffn_gate_exps.weight", size, outer, count);
  w.up = matrix(blk + "ffn_up_exps.weight", size, outer, count);
  if (!architecture.has_gate) w.gate = w.up;
  w.down = matrix(blk + "ffn_down_exps.weight", outer, size, count);
  if (latent.size > 0) {
    w.latent_down = matrix(blk + "ffn_latent_down.weight", latent, hidden());
    w.latent_up = matrix(blk + "ffn_latent_up.weight", hidden(), latent);
  }
  // One kernel streams gate and up of experts, so their types must be equal; in every known file they are.
  if (w.gate.count > 1 && w.gate.dtype != w.up.dtype) {
    fail<FileError>("{}: layer {}: the gate weight of experts is {}, expected {} as the up weight", model_,
                    layer, name(w.gate.dtype), name(w.up.dtype));
  }
  w.router_bias = bias(blk + "ffn_gate_inp.bias", count);
  w.gate_bias = bias(blk + "ffn_gate_exps.bias", size, count);
  w.up_bias = bias(blk + "ffn_up_exps.bias", size, count);
  w.down_bias = bias_of_sum(blk + "ffn_down_exps.bias", count);
  if (config_.shared_ffn_size > 0) take_shared(blk, w);
  if (architecture.choice_bias || has(blk + "exp_probs_b.bias"))
    w.choice_bias = vector(blk + "exp_probs_b.bias", count);
  if (architecture.shared_gate && config_.shared_ffn_size > 0)
    w.shared_weight = matrix(blk + "ffn_gate_inp_shexp.weight", {1}, hidden());
}

void ModelTensors::take_shared(const std::string& blk, LayerWeights& w) {
  const bool is_dense_block = config_.architecture.has_layer_inputs;
  const Dimension size{
      config_.shared_ffn_size,
      is_dense_block ? "feed_forward_length" : "expert_shared_feed_forward_length (or expert_shared_count)"};
  const std::string end = is_dense_block ? ".weight" : "_shexp.weight";
  if (config_.architecture.has_gate) w.shared_gate = matrix(blk + "ffn_gate" + end, size, hidden());
  w.shared_up = matrix(blk + "ffn_up" + end, size, hidden());
  w.shared_down = matrix(blk + "ffn_down" + end, hidden(), size);
  if (!is_dense_block) return;
  w.router_scale = vector(blk + "ffn_gate_inp.scale", hidden());
  w.expert_scales = vector(blk + "ffn_down_exps.scale", {config_.num_experts, "expert_count"});
  w.expert_norm = norm(blk + "pre_ffw_norm_2");
  w.shared_post_norm = norm(blk + "post_ffw_norm_1");
  w.expert_post_norm = norm(blk + "post_ffw_norm_2");
}

void ModelTensors::refuse_older_layout(const std::string& older, const std::string& newer,
                                       std::string_view layout) const {
  if (has(older))
    fail<FileError>("{}: tensor {}: {}; expected {}: convert the model again", model_, older, layout, newer);
}

}  // namespace minfer
