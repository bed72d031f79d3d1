#include "models/decoder/emit/emitter.h"

namespace minfer {
namespace {

WeightList bias_of(const Weight& bias) {
  return {&bias, bias ? size_t{1} : size_t{0}};
}

/// The norm in front of the next layer's first block, which an all-reduce may compute.
Weight norm_of_next_layer(const Emitter& e) {
  const int32_t next = e.layer + 1;
  return next < e.config.num_layers ? e.weights.layers[static_cast<size_t>(next)].first_norm() : Weight{};
}

}  // namespace

Tensor emit_attention_block(Emitter& e, const Tensor& x) {
  const Tensor normed = e.norm("attn_norm", x, e.layer_weights().attn_norm, e.layer_weights().attn_norm_bias);
  emit_attention_block(e, x, normed);
  return normed;
}

void emit_attention_block(Emitter& e, const Tensor& x, const Tensor& normed) {
  const LayerWeights& w = e.layer_weights();
  const bool is_delta_net = e.layer_config().is_delta_net, is_short_conv = e.layer_config().is_short_conv,
             is_mamba = e.layer_config().is_mamba;
  e.windows = e.memory.kv != nullptr && e.memory.kv->layout().is_windowed(e.layer_config());
  const bool is_kimi = is_delta_net && e.config.delta_net.decays_rows;
  const Tensor attended = is_kimi                ? emit_kimi_delta(e, normed)
                          : is_delta_net         ? emit_delta_net(e, normed)
                          : is_short_conv        ? emit_short_conv(e, normed)
                          : is_mamba             ? emit_mamba(e, normed)
                          : e.config.is_latent() ? emit_latent_attention(e, normed)
                                                 : emit_attention(e, normed);
  const Emitter::BlockOut out = e.block_out(x);
  const char* name = is_delta_net    ? "delta_out"
                     : is_short_conv ? "conv_out"
                     : is_mamba      ? "mamba_out"
                                     : "attn_output";
  e.add(name, LinearArgs{.x = attended,
                         .weights = {&w.attn_output, 1},
                         .biases = bias_of(w.attn_output_bias),
                         .out = out.to,
                         .add_to_out = out.add});
  const Weight next_norm = e.layer_config().has_ffn ? w.ffn_norm : norm_of_next_layer(e);
  e.end_block({"attn_all_reduce", "attn_post_norm", w.attn_post_norm, next_norm}, out, x);
  e.windows = false;
}

void emit_feed_forward_block(Emitter& e, const Tensor& x, Tensor normed) {
  const LayerWeights& w = e.layer_weights();
  const bool has_experts = e.layer_config().has_experts;
  if (has_experts && w.expert_norm) {
    const Tensor sum = emit_experts_beside_dense(e, x);
    return e.add_normed("ffn_post_norm", sum, w.ffn_post_norm, x);
  }
  if (!e.config.parallel_blocks) normed = e.norm("ffn_norm", x, w.ffn_norm, w.ffn_norm_bias);
  const Tensor hidden = has_experts ? Tensor{} : emit_feed_forward(e, normed);
  const Emitter::BlockOut out = e.block_out(x);
  if (has_experts) {
    emit_experts(e, normed, normed, out);
  } else {
    e.add("ffn_down", LinearArgs{.x = hidden,
                                 .weights = {&w.down, 1},
                                 .biases = bias_of(w.down_bias),
                                 .out = out.to,
                                 .add_to_out = out.add});
  }
  e.end_block({"ffn_all_reduce", "ffn_post_norm", w.ffn_post_norm, norm_of_next_layer(e),
               has_experts ? e.config.expert_scale() : 1.0f},
              out, x);
}

void emit_head(Emitter& e, const Tensor& x, const Weight& norm, const Weight& output) {
  const ModelConfig& config = e.config;
  const Tensor last = e.value(DType::f32, RowsOf::logit_row, x.cols);
  const Tensor normed = e.value(e.activation, RowsOf::logit_row, x.cols);
  const int64_t share = config.vocab_share();
  const Tensor gathered = e.value(DType::f32, RowsOf::logit_row, share * config.rank.count);
  const Tensor own = Emitter::columns(e.is_alone() ? gathered : e.value(DType::f32, RowsOf::logit_row, share),
                                      0, config.vocab_size);
  e.add("gather_rows", GatherRowsArgs{.x = x, .out = last});
  e.add("output_norm", NormArgs{.x = last,
                                .kind = config.architecture.norm,
                                .weight = norm,
                                .bias = e.weights.output_norm_bias,
                                .eps = config.norm_eps,
                                .scale = config.logit_scale,  // products are linear
                                .out = normed});
  e.add(
      "lm_head",
      LinearArgs{.x = normed, .weights = {&output, 1}, .biases = bias_of(e.weights.output_bias), .out = own});
  if (config.logit_cap > 0.0f) {
    const Activation cap{.kind = Activation::Kind::soft_cap, .cap = config.logit_cap};
    e.add("logit_cap", ActivateArgs{.x = own, .activation = cap, .out = own});
  }
  if (!e.is_alone())
    e.add("gather_logits", GatherColumnsArgs{.part = Emitter::columns(own, 0, share), .out = gathered});
  e.program.logits = Emitter::columns(gathered, 0, config.whole_vocab_size());
}

FrameOps emit_model(Emitter& e) {
  const ModelConfig& config = e.config;
  FrameOps frame;
  frame.inputs = e.add_to_table({.name = "step_inputs", .kind = OpKind::transfer});
  const Tensor x = e.f32(config.hidden_size);
  e.add("embed", EmbedArgs{.table = e.weights.embedding,
                           .first_token = config.rank.index * config.vocab_share(),
                           .vocab_size = config.whole_vocab_size(),
                           .scale = config.embedding_scale,
                           .out = x});
  if (!e.is_alone()) e.all_reduce("embed_all_reduce", x, x, false, e.weights.layers.front().first_norm());
  const Tensor inputs = config.layer_input_size > 0 ? emit_layer_inputs(e, x) : Tensor{};
  const bool has_streams = config.num_streams > 1;
  const Tensor streams = has_streams ? emit_streams(e, x) : Tensor{};
  for (e.layer = 0; e.layer < config.num_layers; ++e.layer) {
    if (config.eagle) emit_eagle_feature(e, x);
    const LayerConfig& layer = e.layer_config();
    if (has_streams) emit_predict(e, streams, x);
    const Tensor normed = layer.is_only_ffn ? Tensor{} : emit_attention_block(e, x);
    if (has_streams) emit_laurel(e, x, normed);
    if (layer.has_ffn) emit_feed_forward_block(e, x, normed);
    if (has_streams) emit_correct(e, streams, x);
    if (config.layer_input_size > 0) emit_layer_input(e, x, inputs, streams);
    const float scale = e.layer_weights().output_scale;
    if (scale != 1.0f)
      e.add("layer_scale", NormArgs{.x = x, .kind = NormKind::none, .scale = scale, .out = x});
  }
  if (config.has_draft_layer) emit_draft_keys(e, x);
  e.layer = -1;
  if (has_streams) emit_merge(e, streams, x);
  e.in_head = true;
  emit_head(e, x, e.weights.output_norm, e.weights.output);
  frame.sample =
      e.add_to_table({.name = "sample", .kind = OpKind::sample, .in_features = config.whole_vocab_size()});
  if (!e.is_alone()) frame.share = e.add_to_table({.name = "share_tokens", .kind = OpKind::broadcast});
  frame.results = e.add_to_table({.name = "step_results", .kind = OpKind::transfer});
  return frame;
}

}  // namespace minfer
