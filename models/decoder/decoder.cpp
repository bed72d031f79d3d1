#include "models/decoder/decoder.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace minfer {

Decoder::Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
                 const DecoderLimits& limits)
    : config_(config),
      weights_(std::move(weights)),
      backend_(backend),
      kv_(kv),
      limits_(limits),
      activation_dtype_(backend.info().activation_dtype) {
  build_op_table();

  const std::vector<float> table =
      make_rope_table(config_, weights_.rope_frequency_factors, limits_.max_positions);
  rope_table_ = backend_.allocate(table.size() * sizeof(float), "rotary table");
  backend_.copy_to_device(rope_table_.data(), table.data(), rope_table_.bytes());

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
  if (activation_dtype_ != DType::f32) q_ = activations(tokens, config_.q_size(), "rotated queries");
  attention_ = activations(tokens, config_.q_size(), "attention output");
  ffn_ = activations(tokens * experts_used, config_.ffn_size, "feed-forward activations");
  if (config_.is_moe()) {
    router_logits_ = allocate(DType::f32, tokens, config_.num_experts, "router logits");
    expert_ids_ =
        backend_.allocate(static_cast<size_t>(tokens * experts_used) * sizeof(int32_t), "expert ids");
    expert_weights_ =
        backend_.allocate(static_cast<size_t>(tokens * experts_used) * sizeof(float), "expert weights");
  }
  last_hidden_ = allocate(DType::f32, limits_.logit_slice, config_.hidden_size, "last hidden states");
  last_normed_ = activations(limits_.logit_slice, config_.hidden_size, "normalised last hidden states");
  logits_ = allocate(DType::f32, limits_.logit_slice, config_.whole_vocab_size(), "logits");
  if (config_.rank.is_alone()) return;
  part_ = allocate(part_dtype(config_, activation_dtype_), tokens, config_.hidden_size, "addends of a rank");
  logits_part_ = allocate(DType::f32, limits_.logit_slice, config_.vocab_size, "logits of a rank");
}

DType Decoder::part_dtype(const ModelConfig& config, DType activation_dtype) {
  return config.is_moe() ? DType::f32 : activation_dtype;
}

DType Decoder::input_dtype(std::initializer_list<Weight> weights, int64_t tokens, int32_t head_size) const {
  // Of several ranks an all-reduce writes the normalised hidden states, in the type of activations alone.
  const bool takes_fp8 =
      config_.rank.is_alone() && backend_.takes_fp8({weights.begin(), weights.size()}, tokens, head_size);
  return takes_fp8 ? DType::fp8 : activation_dtype_;
}

bool Decoder::takes_norm(std::initializer_list<Weight> weights, int64_t tokens) const {
  return config_.rank.is_alone() && backend_.takes_norm({weights.begin(), weights.size()}, tokens);
}

Decoder::InputTypes Decoder::input_types(const LayerWeights& w, int64_t tokens) const {
  return {.qkv = input_dtype({w.q, w.k, w.v}, tokens),
          .attn_output = input_dtype({w.attn_output}, tokens, config_.head_size),
          .ffn = config_.is_moe() ? activation_dtype_ : input_dtype({w.gate, w.up, w.down}, tokens)};
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
  const int32_t first_token = config_.rank.index * config_.vocab_size;
  backend_.embed(embed_op_, {.token_ids = batch.token_ids,
                             .table = weights_.embedding,
                             .first_token = first_token,
                             .vocab_size = config_.whole_vocab_size(),
                             .out = x});
  if (!config_.rank.is_alone()) {
    backend_.all_reduce(embed_all_reduce_op_, {.part = x,
                                               .x = x,
                                               .norm = weights_.layers.front().attn_norm,
                                               .norm_eps = config_.norm_eps,
                                               .normed = workspace(normed_, x.rows, config_.hidden_size)});
  }
  for (int32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention_block(batch, layer, x);
    config_.is_moe() ? moe_block(layer, x) : ffn_block(layer, x);
  }
  return logits(batch, 0);
}

Tensor Decoder::logits(const ForwardBatch& batch, int32_t first_row) {
  const int32_t rows = std::min(batch.num_logit_rows - first_row, limits_.logit_slice);
  const Tensor logits = f32_workspace(logits_, rows, config_.whole_vocab_size());
  if (rows == 0) return logits;
  const Tensor x = f32_workspace(hidden_, batch.num_tokens, config_.hidden_size);
  const Tensor last = f32_workspace(last_hidden_, rows, config_.hidden_size);
  const Tensor normed = workspace(last_normed_, rows, config_.hidden_size);
  backend_.gather_rows(gather_op_, x, batch.logit_rows + first_row, last);
  backend_.rms_norm(output_norm_op_, last, weights_.output_norm, config_.norm_eps, normed);
  const bool alone = config_.rank.is_alone();
  const Tensor own = alone ? logits : f32_workspace(logits_part_, rows, config_.vocab_size);
  backend_.linear(lm_head_op_, {.x = normed, .weights = {&weights_.output, 1}, .out = own});
  if (!alone) backend_.gather_columns(gather_logits_op_, own, logits);
  return logits;
}

Weight Decoder::norm_behind(int32_t layer) const {
  const auto next = static_cast<size_t>(layer) + 1;
  return next < weights_.layers.size() ? weights_.layers[next].attn_norm : Weight{};
}

void Decoder::add_product(OpId product, OpId all_reduce, const Tensor& in, const Weight& weight,
                          const Tensor& x, const Weight& norm) {
  if (config_.rank.is_alone())
    return backend_.linear(product, {.x = in, .weights = {&weight, 1}, .out = x, .add_to_out = true});
  const Tensor part{.data = part_.data(),
                    .dtype = part_dtype(config_, activation_dtype_),
                    .rows = x.rows,
                    .cols = x.cols,
                    .stride = x.cols};
  backend_.linear(product, {.x = in, .weights = {&weight, 1}, .out = part});
  add_parts(all_reduce, part, x, norm);
}

void Decoder::add_parts(OpId all_reduce, const Tensor& part, const Tensor& x, const Weight& norm) {
  backend_.all_reduce(all_reduce, {.part = part,
                                   .x = x,
                                   .add_to_x = true,
                                   .norm = norm,
                                   .norm_eps = config_.norm_eps,
                                   .normed = workspace(normed_, x.rows, config_.hidden_size)});
}

void Decoder::attention_block(const ForwardBatch& batch, int32_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const InputTypes types = input_types(w, x.rows);
  const Tensor normed = workspace(normed_, x.rows, config_.hidden_size, types.qkv);
  const Tensor qkv = f32_workspace(qkv_, x.rows, config_.qkv_size());
  const Tensor q = q_.data() != nullptr ? workspace(q_, x.rows, config_.q_size()) : Tensor{};
  const Tensor attended = workspace(attention_, x.rows, config_.q_size(), types.attn_output);

  const bool folds_norm = takes_norm({w.q, w.k, w.v}, x.rows);
  if (config_.rank.is_alone() && !folds_norm)
    backend_.rms_norm(ops.attn_norm, x, w.attn_norm, config_.norm_eps, normed);
  const std::array<Weight, 3> weights{w.q, w.k, w.v};
  const std::array<Weight, 3> biases{w.q_bias, w.k_bias, w.v_bias};
  backend_.linear(ops.qkv, {.x = folds_norm ? x : normed,
                            .weights = weights,
                            .biases = w.q_bias ? std::span<const Weight>(biases) : std::span<const Weight>(),
                            .out = qkv,
                            .norm = folds_norm ? FrontNorm{w.attn_norm, config_.norm_eps} : FrontNorm{}});
  backend_.rope_kv_write(ops.rope_kv_write, batch,
                         {.qkv = qkv,
                          .q_out = q,
                          .heads = config_.num_heads,
                          .rotary_size = config_.rotary_size,
                          .pairing = config_.architecture.rope_pairing,
                          .cos_sin = static_cast<const float*>(rope_table_.data()),
                          .q_norm = w.q_norm,
                          .k_norm = w.k_norm,
                          .norm_eps = config_.norm_eps,
                          .kv = kv_.layer(layer)});

  AttentionArgs attention{.qkv = q.data != nullptr ? q : qkv,
                          .heads = config_.num_heads,
                          .scale = 1.0f / std::sqrt(static_cast<float>(config_.head_size)),
                          .kv = kv_.layer(layer),
                          .first_sequence = 0,
                          .num_sequences = batch.num_decode_sequences,
                          .out = attended};
  if (attention.num_sequences > 0) backend_.attention(ops.attention_decode, batch, attention);
  attention.first_sequence = batch.num_decode_sequences;
  attention.num_sequences = batch.num_sequences - batch.num_decode_sequences;
  if (attention.num_sequences > 0) backend_.attention(ops.attention_prefill, batch, attention);

  add_product(ops.attn_output, ops.attn_all_reduce, attended, w.attn_output, x, w.ffn_norm);
}

void Decoder::ffn_block(int32_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const InputTypes types = input_types(w, x.rows);
  const Tensor normed = workspace(normed_, x.rows, config_.hidden_size, types.ffn);
  const Tensor hidden = workspace(ffn_, x.rows, config_.ffn_size, types.ffn);
  const bool folds_norm = takes_norm({w.gate, w.up}, x.rows);
  if (config_.rank.is_alone() && !folds_norm)
    backend_.rms_norm(ops.ffn_norm, x, w.ffn_norm, config_.norm_eps, normed);
  backend_.gate_up_swiglu(ops.gate_up,
                          {.x = folds_norm ? x : normed,
                           .gate = w.gate,
                           .up = w.up,
                           .out = hidden,
                           .norm = folds_norm ? FrontNorm{w.ffn_norm, config_.norm_eps} : FrontNorm{}});
  add_product(ops.down, ops.ffn_all_reduce, hidden, w.down, x, norm_behind(layer));
}

void Decoder::moe_block(int32_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const int32_t used = config_.num_experts_used;
  const Tensor normed = workspace(normed_, x.rows, config_.hidden_size);
  const Tensor router_logits = f32_workspace(router_logits_, x.rows, config_.num_experts);
  const Tensor hidden = workspace(ffn_, x.rows * used, config_.ffn_size);
  const bool alone = config_.rank.is_alone();
  const Tensor part = f32_workspace(part_, x.rows, config_.hidden_size);
  auto* expert_ids = static_cast<int32_t*>(expert_ids_.data());
  auto* expert_weights = static_cast<float*>(expert_weights_.data());

  if (config_.rank.is_alone()) backend_.rms_norm(ops.ffn_norm, x, w.ffn_norm, config_.norm_eps, normed);
  backend_.linear(ops.router, {.x = normed, .weights = {&w.router, 1}, .out = router_logits});
  backend_.moe_route(ops.route, {.logits = router_logits,
                                 .experts_used = used,
                                 .expert_ids = expert_ids,
                                 .expert_weights = expert_weights});
  backend_.moe_gate_up_swiglu(ops.gate_up, {.x = normed,
                                            .gate = w.gate,
                                            .up = w.up,
                                            .expert_ids = expert_ids,
                                            .experts_used = used,
                                            .out = hidden});
  backend_.moe_down(ops.down, {.hidden = hidden,
                               .down = w.down,
                               .expert_ids = expert_ids,
                               .expert_weights = expert_weights,
                               .experts_used = used,
                               .out = alone ? x : part,
                               .add_to_out = alone});
  if (!alone) add_parts(ops.ffn_all_reduce, part, x, norm_behind(layer));
}

}  // namespace minfer
