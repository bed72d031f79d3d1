#include "models/decoder/decoder.h"

#include <algorithm>

namespace minfer {

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
                 const StatePool& states, const DecoderLimits& limits)
    : config_(config),
      weights_(std::move(weights)),
      backend_(backend),
      kv_(kv),
      states_(states),
      limits_(limits),
      activation_dtype_(backend.info().activation_dtype) {
  build_op_table();

  make_rope_tables();
  make_constants();
  const auto allocate = [this](DType dtype, int64_t rows, int64_t cols, std::string_view what) {
    return backend_.allocate(static_cast<size_t>(rows) * row_bytes(dtype, cols), what);
  };
  const auto activations = [&](int64_t rows, int64_t cols, std::string_view what) {
    return allocate(activation_dtype_, rows, cols, what);
  };
  const int64_t tokens = limits_.max_tokens;
  const int64_t experts_used = std::max(1, config_.num_experts_used);
  hidden_ = allocate(DType::f32, tokens, config_.hidden_size, "hidden states");
  normed_ = activations(tokens, config_.hidden_size, "normalised hidden states");
  qkv_ = allocate(DType::f32, tokens, config_.qkv_size(), "queries, keys and values");
  const LatentAttention& latent = config_.latent;
  if (activation_dtype_ != DType::f32 || config_.is_latent() || config_.architecture.gates_heads)
    q_ = activations(tokens, config_.q_size(), "rotated queries");
  attention_ = activations(tokens, config_.attended_size(), "attention output");
  if (config_.has_states()) {
    delta_qkv_ = allocate(DType::f32, tokens, config_.delta_net.channels(), "convolutions of delta nets");
    delta_values_ = allocate(DType::f32, tokens, config_.delta_net.value_columns(), "values of delta nets");
  }
  if (config_.is_latent()) values_ = activations(tokens, config_.output_size(), "values of heads");
  if (latent.q_rank > 0) {
    latent_q_ =
        allocate(DType::f32, tokens, int64_t{config_.num_heads} * latent.key_size, "queries of heads");
    latent_q_in_ = activations(tokens, latent.q_rank, "compressed queries");
  }
  ffn_ = activations(tokens, ffn_elements(config_), "feed-forward activations");
  if (!config_.adds_products())
    block_out_ = allocate(DType::f32, tokens, config_.hidden_size, "block outputs");
  if (config_.is_moe()) {
    router_logits_ = allocate(DType::f32, tokens, config_.num_experts, "router logits");
    expert_ids_ =
        backend_.allocate(static_cast<size_t>(tokens * experts_used) * sizeof(int32_t), "expert ids");
    expert_weights_ =
        backend_.allocate(static_cast<size_t>(tokens * experts_used) * sizeof(float), "expert weights");
  }
  last_hidden_ = allocate(DType::f32, limits_.logit_slice, config_.hidden_size, "last hidden states");
  last_normed_ = activations(limits_.logit_slice, config_.hidden_size, "normalised last hidden states");
  const int32_t share = config_.vocab_share();
  logits_ = allocate(DType::f32, limits_.logit_slice, int64_t{share} * config_.rank.count, "logits");
  if (config_.rank.is_alone()) return;
  part_ = allocate(part_dtype(config_, activation_dtype_), tokens, config_.hidden_size, "addends of a rank");
  logits_part_ = allocate(DType::f32, limits_.logit_slice, share, "logits of a rank");
}

DType Decoder::part_dtype(const ModelConfig& config, DType activation_dtype) {
  return config.is_moe() ? DType::f32 : activation_dtype;
}

int64_t Decoder::ffn_elements(const ModelConfig& config) {
  const int64_t of_experts = int64_t{config.num_experts_used} * config.expert_ffn_size;
  return std::max<int64_t>({of_experts, config.ffn_size, config.shared_ffn_size});
}

DType Decoder::input_dtype(std::initializer_list<Weight> weights, int64_t tokens, int32_t head_size) const {
  // Of several ranks an all-reduce writes the normalised hidden states, in the type of activations alone.
  const bool takes_fp8 =
      config_.rank.is_alone() && backend_.takes_fp8({weights.begin(), weights.size()}, tokens, head_size);
  return takes_fp8 ? DType::fp8 : activation_dtype_;
}

DType Decoder::attended_dtype(int32_t layer, int64_t tokens) const {
  // Heads with gates are multiplied in place.
  const bool is_delta_net = config_.is_delta_net(layer);
  if (config_.is_latent() || (config_.architecture.gates_heads && !is_delta_net)) return activation_dtype_;
  // Gates to fp8 are read by fours, and a row of them ends with two numbers of each head.
  if (is_delta_net && config_.delta_net.value_heads % 2 != 0) return activation_dtype_;
  const int32_t size = is_delta_net ? config_.delta_net.value_size : config_.heads(layer).size;
  return input_dtype({weights_.layers[static_cast<size_t>(layer)].attn_output}, tokens, size);
}

Decoder::InputTypes Decoder::input_types(int32_t layer, int64_t tokens) const {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  InputTypes types{
      .qkv = activation_dtype_, .attn_output = attended_dtype(layer, tokens), .ffn = activation_dtype_};
  // Of norms, plain RMS norms alone write fp8, and one that two blocks take would have to be right for both.
  const Architecture& architecture = config_.architecture;
  if (architecture.norm != NormKind::rms || architecture.norm_placement == NormPlacement::after ||
      config_.parallel_blocks)
    return types;
  const DeltaNetWeights& delta = w.delta;
  types.qkv = delta.alpha           ? input_dtype({delta.qkv, delta.z, delta.beta, delta.alpha}, tokens)
              : delta.qkv           ? input_dtype({delta.qkv, delta.z, delta.beta}, tokens)
              : config_.is_latent() ? input_dtype({w.q_a ? w.q_a : w.q, w.kv_a}, tokens)
              : w.v                 ? input_dtype({w.q, w.k, w.v}, tokens)
                                    : input_dtype({w.q, w.k}, tokens);
  if (!w.router && architecture.has_gate) types.ffn = input_dtype({w.gate, w.up, w.down}, tokens);
  return types;
}

AttentionWindow Decoder::window_of(int32_t layer) const {
  const AttentionWindow window = config_.layer(layer).window;
  return window.keys < limits_.max_positions ? window : AttentionWindow{};
}

std::array<Weight, 2> Decoder::head_norms(int32_t layer) const {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  if (config_.architecture.qk_norm == QkNorm::head) return {w.q_norm, w.k_norm};
  const bool rotates = config_.layer(layer).rope != LayerConfig::kNoRope;
  if (config_.architecture.qk_norm != QkNorm::rotated_head || !rotates) return {};
  // A rotation keeps the size of a head, so that it may as well come behind the norm.
  const Weight ones{.data = ones_.data(), .dtype = DType::f32, .rows = 1, .cols = config_.heads(layer).size};
  return {ones, ones};
}

Weight Decoder::value_norm(int32_t layer) const {
  if (!config_.architecture.norms_values) return {};
  return {.data = ones_.data(), .dtype = DType::f32, .rows = 1, .cols = config_.value_size(layer)};
}

void Decoder::scale_layer(int32_t layer, const Tensor& x) {
  const float scale = weights_.layers[static_cast<size_t>(layer)].output_scale;
  if (scale == 1.0f) return;
  backend_.norm(layer_ops_[static_cast<size_t>(layer)].scale,
                {.x = x, .kind = NormKind::none, .scale = scale, .out = x});
}

std::span<const Weight> Decoder::bias_of(const Weight& bias) {
  return {&bias, bias ? size_t{1} : size_t{0}};
}

Tensor Decoder::workspace(const Buffer& buffer, int64_t rows, int64_t cols) const {
  return workspace(buffer, rows, cols, activation_dtype_);
}

Tensor Decoder::workspace(const Buffer& buffer, int64_t rows, int64_t cols, DType dtype) const {
  return {.data = buffer.data(), .dtype = dtype, .rows = rows, .cols = cols, .stride = cols};
}

Tensor Decoder::f32_workspace(const Buffer& buffer, int64_t rows, int64_t cols) const {
  return {.data = buffer.data(), .dtype = DType::f32, .rows = rows, .cols = cols, .stride = cols};
}

Tensor Decoder::forward(const ForwardBatch& batch) {
  if (batch.num_tokens > limits_.max_tokens) {
    fail("a step of {} tokens exceeds the workspace of {}", batch.num_tokens, limits_.max_tokens);
  }
  const Tensor x = f32_workspace(hidden_, batch.num_tokens, config_.hidden_size);
  const int32_t first_token = config_.rank.index * config_.vocab_share();
  backend_.embed(embed_op_, {.token_ids = batch.token_ids,
                             .table = weights_.embedding,
                             .first_token = first_token,
                             .vocab_size = config_.whole_vocab_size(),
                             .scale = config_.embedding_scale,
                             .out = x});
  if (!config_.rank.is_alone()) {
    const Weight norm = norms_in_all_reduce() ? weights_.layers.front().attn_norm : Weight{};
    backend_.all_reduce(embed_all_reduce_op_, {.part = x,
                                               .x = x,
                                               .norm = norm,
                                               .norm_eps = config_.norm_eps,
                                               .normed = workspace(normed_, x.rows, config_.hidden_size)});
  }
  const ForwardBatch of_windows = batch.of_windows();
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(kv_.layout().is_windowed(config_.layer(layer)) ? of_windows : batch, layer, x);
    config_.layer(layer).has_experts ? moe_block(layer, x) : ffn_block(layer, x);
    scale_layer(layer, x);
  }
  return logits(batch, 0);
}

Tensor Decoder::logits(const ForwardBatch& batch, int32_t first_row) {
  const int32_t rows = std::min(batch.num_logit_rows - first_row, limits_.logit_slice);
  const int32_t share = config_.vocab_share();
  const Tensor gathered = f32_workspace(logits_, rows, int64_t{share} * config_.rank.count);
  Tensor logits = gathered;
  logits.cols = config_.whole_vocab_size();
  if (rows == 0) return logits;
  const Tensor x = f32_workspace(hidden_, batch.num_tokens, config_.hidden_size);
  const Tensor last = f32_workspace(last_hidden_, rows, config_.hidden_size);
  const Tensor normed = workspace(last_normed_, rows, config_.hidden_size);
  backend_.gather_rows(gather_op_, x, batch.logit_rows + first_row, last);
  backend_.norm(output_norm_op_, {.x = last,
                                  .kind = config_.architecture.norm,
                                  .weight = weights_.output_norm,
                                  .bias = weights_.output_norm_bias,
                                  .eps = config_.norm_eps,
                                  .scale = config_.logit_scale,  // products are linear
                                  .out = normed});
  const bool alone = config_.rank.is_alone();
  const Tensor part = alone ? logits : f32_workspace(logits_part_, rows, share);
  Tensor own = part;
  own.cols = config_.vocab_size;
  backend_.linear(lm_head_op_, {.x = normed, .weights = {&weights_.output, 1}, .out = own});
  if (config_.logit_cap > 0.0f) {
    const Activation cap{.kind = Activation::Kind::soft_cap, .cap = config_.logit_cap};
    backend_.activate(logit_cap_op_, {.x = own, .activation = cap, .out = own});
  }
  if (!alone) backend_.gather_columns(gather_logits_op_, part, gathered);
  return logits;
}

bool Decoder::norms_in_all_reduce() const {
  return !config_.rank.is_alone() && config_.adds_products() && !config_.parallel_blocks &&
         config_.architecture.norm == NormKind::rms;
}

Decoder::BlockOut Decoder::block_out(const Tensor& x) const {
  if (!config_.rank.is_alone())
    return {workspace(part_, x.rows, x.cols, part_dtype(config_, activation_dtype_)), false};
  if (config_.adds_products()) return {x, true};
  return {f32_workspace(block_out_, x.rows, x.cols), false};
}

Decoder::BlockEnd Decoder::attention_end(int32_t layer) const {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  return {ops.attn_all_reduce, ops.attn_add, w.attn_post_norm, norms_in_all_reduce() ? w.ffn_norm : Weight{}};
}

Decoder::BlockEnd Decoder::ffn_end(int32_t layer) const {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const auto next = static_cast<size_t>(layer) + 1;
  const bool norms_next = norms_in_all_reduce() && next < weights_.layers.size();
  return {ops.ffn_all_reduce, ops.ffn_add, w.ffn_post_norm,
          norms_next ? weights_.layers[next].attn_norm : Weight{}};
}

void Decoder::end_block(const BlockEnd& end, const Tensor& x) {
  const bool adds_products = config_.adds_products();
  const Tensor sum = adds_products ? x : f32_workspace(block_out_, x.rows, x.cols);
  if (!config_.rank.is_alone()) {
    backend_.all_reduce(end.all_reduce, {.part = block_out(x).to,
                                         .x = sum,
                                         .add_to_x = adds_products,
                                         .norm = end.next_norm,
                                         .norm_eps = config_.norm_eps,
                                         .normed = workspace(normed_, x.rows, config_.hidden_size)});
  }
  if (adds_products) return;
  backend_.norm(end.add, {.x = sum,
                          .kind = end.post_norm ? config_.architecture.norm : NormKind::none,
                          .weight = end.post_norm,
                          .eps = config_.norm_eps,
                          .scale = config_.residual_scale,
                          .add_to_out = true,
                          .out = x});
}

void Decoder::norm_before(const Norm& norm, const Tensor& x, const Tensor& out) {
  if (norms_in_all_reduce()) return;
  backend_.norm(norm.op, {.x = x,
                          .kind = norm.weight ? config_.architecture.norm : NormKind::none,
                          .weight = norm.weight,
                          .bias = norm.bias,
                          .eps = config_.norm_eps,
                          .out = out});
}

Decoder::BlockIn Decoder::block_in(const Norm& norm, const Tensor& x, std::initializer_list<Weight> products,
                                   const Tensor& normed) {
  const bool is_plain = config_.architecture.norm == NormKind::rms && norm.weight && !norm.bias;
  if (config_.rank.is_alone() && is_plain && !config_.parallel_blocks &&
      backend_.takes_norm({products.begin(), products.size()}, x.rows))
    return {x, {norm.weight, config_.norm_eps}};
  norm_before(norm, x, normed);
  return {normed, {}};
}

void Decoder::attention_block(const ForwardBatch& batch, int32_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const InputTypes types = input_types(layer, x.rows);
  const bool latent = config_.is_latent();
  const Tensor normed = workspace(normed_, x.rows, config_.hidden_size, types.qkv);
  const Tensor attended =
      workspace(latent ? values_ : attention_, x.rows, config_.output_size(layer), types.attn_output);
  const Norm norm{ops.attn_norm, w.attn_norm, w.attn_norm_bias};
  if (config_.is_delta_net(layer)) {
    const DeltaNetWeights& delta = w.delta;
    run_delta_net(batch, layer,
                  delta.alpha ? block_in(norm, x, {delta.qkv, delta.z, delta.beta, delta.alpha}, normed)
                              : block_in(norm, x, {delta.qkv, delta.z, delta.beta}, normed),
                  attended);
  } else if (latent) {
    attend_latent(batch, layer, block_in(norm, x, {w.q_a ? w.q_a : w.q, w.kv_a}, normed), attended);
  } else {
    attend_heads(batch, layer,
                 w.v ? block_in(norm, x, {w.q, w.k, w.v}, normed) : block_in(norm, x, {w.q, w.k}, normed),
                 attended);
  }
  const BlockOut out = block_out(x);
  backend_.linear(ops.attn_output, {.x = attended,
                                    .weights = {&w.attn_output, 1},
                                    .biases = bias_of(w.attn_output_bias),
                                    .out = out.to,
                                    .add_to_out = out.add});
  end_block(attention_end(layer), x);
}

void Decoder::norm_rows_of_qk(int32_t layer, const Tensor& qkv) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  Tensor q = qkv, k = qkv;
  q.cols = config_.q_size(layer);
  k.cols = config_.kv_size(layer);
  k.data = qkv.f32() + q.cols;
  backend_.norm(ops.q_norm, {.x = q, .weight = w.q_norm, .eps = config_.norm_eps, .out = q});
  backend_.norm(ops.k_norm, {.x = k, .weight = w.k_norm, .eps = config_.norm_eps, .out = k});
}

void Decoder::attend_heads(const ForwardBatch& batch, int32_t layer, const BlockIn& in,
                           const Tensor& attended) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const LayerConfig& of_layer = config_.layer(layer);
  const bool has_rope = of_layer.rope != LayerConfig::kNoRope;
  const Buffer& angles = rope_tables_[static_cast<size_t>(has_rope ? of_layer.rope : 0)];
  const Tensor qkv = f32_workspace(qkv_, attended.rows, config_.qkv_size(layer));
  const std::array<Weight, 3> weights{w.q, w.k, w.v};
  const std::array<Weight, 3> biases{w.q_bias, w.k_bias, w.v_bias};
  const size_t products = of_layer.values_are_keys ? 2 : 3;
  backend_.linear(ops.qkv, {.x = in.x,
                            .weights = std::span(weights).first(products),
                            .biases = std::span(biases).first(w.q_bias ? products : 0),
                            .out = qkv,
                            .norm = in.norm});
  if (config_.architecture.qk_norm == QkNorm::row) norm_rows_of_qk(layer, qkv);
  const auto [q_norm, k_norm] = head_norms(layer);
  const Tensor q = q_.data() != nullptr ? workspace(q_, qkv.rows, config_.q_size(layer)) : Tensor{};
  backend_.rope_kv_write(
      ops.rope_kv_write, batch,
      {.qkv = qkv,
       .q_out = q,
       .heads = config_.num_heads,
       .rotary_size = has_rope ? config_.rotary_size_of(layer) : 0,
       .pairing = config_.architecture.rope_pairing,
       .cos_sin = static_cast<const float*>(angles.data()),
       .q_norm = q_norm,
       .k_norm = k_norm,
       .layer_norms = config_.architecture.norm == NormKind::layer,
       .norm_eps = config_.norm_eps,
       .kv = kv_.layer(layer),
       .q_scale = of_layer.has_temperature ? static_cast<const float*>(q_scales_.data()) : nullptr,
       .v_norm = value_norm(layer),
       .v_is_k = of_layer.values_are_keys,
       .q_has_gate = config_.architecture.gates_heads});

  Tensor attending = q.data != nullptr ? q : qkv;
  if (of_layer.values_are_keys) attending.cols = config_.q_size(layer);
  attend(batch, layer, attending, attended);
  if (config_.architecture.gates_heads) gate_heads(layer, qkv, attended);
}

void Decoder::attend(const ForwardBatch& batch, int32_t layer, const Tensor& q, const Tensor& attended) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  AttentionArgs attention{.qkv = q,
                          .heads = config_.num_heads,
                          .scale = config_.heads(layer).scale,
                          .kv = kv_.layer(layer),
                          .first_sequence = 0,
                          .num_sequences = batch.num_decode_sequences,
                          .out = attended,
                          .window = window_of(layer),
                          .logit_cap = config_.attention_cap,
                          .sinks = w.sinks};
  if (attention.num_sequences > 0) backend_.attention(ops.attention_decode, batch, attention);
  attention.first_sequence = batch.num_decode_sequences;
  attention.num_sequences = batch.num_sequences - batch.num_decode_sequences;
  if (attention.num_sequences > 0) backend_.attention(ops.attention_prefill, batch, attention);
}

void Decoder::ffn_block(int32_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const InputTypes types = input_types(layer, x.rows);
  const Tensor normed = workspace(normed_, x.rows, config_.hidden_size, types.ffn);
  const Tensor hidden = workspace(ffn_, x.rows, config_.ffn_size, types.ffn);
  const Norm norm{ops.ffn_norm, w.ffn_norm, w.ffn_norm_bias};
  ffn_hidden(layer,
             config_.parallel_blocks         ? BlockIn{normed, {}}
             : config_.architecture.has_gate ? block_in(norm, x, {w.gate, w.up}, normed)
                                             : block_in(norm, x, {w.up}, normed),
             hidden);
  const BlockOut out = block_out(x);
  backend_.linear(ops.down, {.x = hidden,
                             .weights = {&w.down, 1},
                             .biases = bias_of(w.down_bias),
                             .out = out.to,
                             .add_to_out = out.add});
  end_block(ffn_end(layer), x);
}

void Decoder::ffn_hidden(int32_t layer, const BlockIn& in, const Tensor& hidden) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  if (config_.architecture.has_gate) {
    return backend_.gate_up_swiglu(ops.gate_up, {.x = in.x,
                                                 .gate = w.gate,
                                                 .up = w.up,
                                                 .out = hidden,
                                                 .activation = config_.architecture.gate,
                                                 .gate_bias = w.gate_bias,
                                                 .up_bias = w.up_bias,
                                                 .norm = in.norm});
  }
  backend_.linear(
      ops.gate_up,
      {.x = in.x, .weights = {&w.up, 1}, .biases = bias_of(w.up_bias), .out = hidden, .norm = in.norm});
  backend_.activate(
      ops.activate,
      {.x = hidden, .activation = config_.activations[static_cast<size_t>(layer)], .out = hidden});
}

}  // namespace minfer
