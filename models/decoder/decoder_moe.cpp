// Blocks of experts, as the decoder runs them.
#include "models/decoder/decoder.h"

namespace minfer {

void Decoder::moe_block(int32_t layer, const Tensor& x) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const Tensor normed = workspace(normed_, x.rows, config_.hidden_size);
  const BlockOut out = block_out(x);
  if (!config_.parallel_blocks) norm_before({ops.ffn_norm, w.ffn_norm, w.ffn_norm_bias}, x, normed);
  choose_experts(layer, normed, out);
  if (w.shared_up) add_shared_experts(layer, normed, out.to);
  end_block(ffn_end(layer), x);
}

void Decoder::choose_experts(int32_t layer, const Tensor& normed, const BlockOut& out) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const int32_t used = config_.num_experts_used;
  const Tensor router_logits = f32_workspace(router_logits_, normed.rows, config_.num_experts);
  const Tensor hidden = workspace(ffn_, normed.rows * used, config_.expert_ffn_size);
  auto* expert_ids = static_cast<int32_t*>(expert_ids_.data());
  auto* expert_weights = static_cast<float*>(expert_weights_.data());
  const bool weights_input = config_.architecture.expert_weights_input;
  backend_.linear(
      ops.router,
      {.x = normed, .weights = {&w.router, 1}, .biases = bias_of(w.router_bias), .out = router_logits});
  backend_.moe_route(ops.route, {.logits = router_logits,
                                 .experts_used = used,
                                 .choice = config_.expert_choice,
                                 .bias = w.choice_bias,
                                 .expert_ids = expert_ids,
                                 .expert_weights = expert_weights});
  backend_.moe_gate_up_swiglu(ops.gate_up, {.x = normed,
                                            .gate = w.gate,
                                            .up = w.up,
                                            .expert_ids = expert_ids,
                                            .experts_used = used,
                                            .out = hidden,
                                            .activation = config_.architecture.gate,
                                            .gate_bias = w.gate_bias,
                                            .up_bias = w.up_bias,
                                            .input_weights = weights_input ? expert_weights : nullptr});
  backend_.moe_down(
      ops.down, {.hidden = hidden,
                 .down = w.down,
                 .expert_ids = expert_ids,
                 .expert_weights = weights_input ? static_cast<const float*>(ones_.data()) : expert_weights,
                 .experts_used = used,
                 .out = out.to,
                 .add_to_out = out.add,
                 .bias = w.down_bias,
                 .follows_gate_up = true});
}

void Decoder::add_shared_experts(int32_t layer, const Tensor& normed, const Tensor& out) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const LayerOps& ops = layer_ops_[static_cast<size_t>(layer)];
  const Tensor hidden = workspace(ffn_, normed.rows, config_.shared_ffn_size);
  backend_.gate_up_swiglu(ops.shared_gate_up, {.x = normed,
                                               .gate = w.shared_gate,
                                               .up = w.shared_up,
                                               .out = hidden,
                                               .activation = config_.architecture.gate});
  if (!w.shared_weight)
    return backend_.linear(ops.shared_down,
                           {.x = hidden, .weights = {&w.shared_down, 1}, .out = out, .add_to_out = true});
  // The choice of one expert of one, weighted by its sigmoid.
  const Tensor router_logits = f32_workspace(router_logits_, normed.rows, 1);
  auto* expert_ids = static_cast<int32_t*>(expert_ids_.data());
  auto* expert_weights = static_cast<float*>(expert_weights_.data());
  backend_.linear(ops.shared_router, {.x = normed, .weights = {&w.shared_weight, 1}, .out = router_logits});
  backend_.moe_route(ops.shared_route, {.logits = router_logits,
                                        .experts_used = 1,
                                        .choice = {.score = ExpertScore::sigmoid, .normalise = false},
                                        .expert_ids = expert_ids,
                                        .expert_weights = expert_weights});
  backend_.moe_down(ops.shared_down, {.hidden = hidden,
                                      .down = w.shared_down,
                                      .expert_ids = expert_ids,
                                      .expert_weights = expert_weights,
                                      .experts_used = 1,
                                      .out = out});
}

}  // namespace minfer
