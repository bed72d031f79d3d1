#include <cmath>

#include "models/decoder/emit/emitter.h"

// Experts (Shazeer et al. 2017, "Outrageously large neural networks"; shared ones: Dai et al. 2024, "DeepSeekMoE"):
//
//   moe_router, moe_route   which experts a token takes, and what each counts
//   moe_gate_up_swiglu      hidden of each of a token's experts
//   moe_down                their weighted sum
//   moe_latent_*            products around them, where they have a size of their own (Nemotron 3 Super)
//   shared_*                of the experts that every token takes, weighted by a sigmoid of their own where the family has it
//
// In Gemma 4 the shared expert is a dense block beside the experts. Router, experts and dense block each have a norm of x, and both
// results a norm behind them.
namespace minfer {
namespace {

/// Experts without a gate have the square of ReLU, with up as its own gate.
GateActivation gate_of_experts(const Architecture& architecture) {
  return architecture.has_gate ? architecture.gate : GateActivation::relu;
}

/// out += the shared experts' sum.
void emit_shared_experts(Emitter& e, const Tensor& normed, const Tensor& out) {
  const LayerWeights& w = e.layer_weights();
  const auto add = [&](const char* name, OpArgs args) {
    e.add({.name = name, .experts = 1, .experts_used = 1}, std::move(args));
  };
  const Tensor hidden = e.activations(e.config.shared_ffn_size);
  if (w.shared_gate) {
    add("shared_gate_up_swiglu", GateUpArgs{.x = normed,
                                            .gate = w.shared_gate,
                                            .up = w.shared_up,
                                            .out = hidden,
                                            .activation = e.config.architecture.gate});
  } else {
    add("shared_up", LinearArgs{.x = normed, .weights = {&w.shared_up, 1}, .out = hidden});
    add("shared_activate",
        ActivateArgs{
            .x = hidden, .activation = e.config.activations[static_cast<size_t>(e.layer)], .out = hidden});
  }
  if (!w.shared_weight) {
    return add("shared_down",
               LinearArgs{.x = hidden, .weights = {&w.shared_down, 1}, .out = out, .add_to_out = true});
  }
  // The choice of one expert of one, weighted by its sigmoid.
  const Tensor logits = e.f32(1);
  const auto ids = e.numbers<int32_t>(1);
  const auto weights = e.numbers<float>(1);
  add("shared_router", LinearArgs{.x = normed, .weights = {&w.shared_weight, 1}, .out = logits});
  add("shared_route", MoeRouteArgs{.logits = logits,
                                   .experts_used = 1,
                                   .choice = {.score = ExpertScore::sigmoid, .normalise = false},
                                   .expert_ids = ids,
                                   .expert_weights = weights});
  add("shared_down", MoeDownArgs{.hidden = hidden,
                                 .down = w.shared_down,
                                 .expert_ids = ids,
                                 .expert_weights = weights,
                                 .experts_used = 1,
                                 .out = out});
}

}  // namespace

void emit_experts(Emitter& e, const Tensor& routed, const Tensor& normed, const Emitter::BlockOut& out) {
  const LayerWeights& w = e.layer_weights();
  const int32_t used = e.config.num_experts_used;
  const bool weights_input = e.config.architecture.expert_weights_input;
  const Tensor logits = e.f32(e.config.num_experts);
  const auto ids = e.numbers<int32_t>(used);
  const auto weights = e.numbers<float>(used);
  e.add("moe_router", LinearArgs{.x = routed,
                                 .weights = {&w.router, 1},
                                 .biases = {&w.router_bias, w.router_bias ? size_t{1} : size_t{0}},
                                 .out = logits});
  e.add("moe_route", MoeRouteArgs{.logits = logits,
                                  .experts_used = used,
                                  .choice = e.config.expert_choice,
                                  .bias = w.choice_bias,
                                  .expert_ids = ids,
                                  .expert_weights = weights,
                                  .expert_scales = w.expert_scales});
  const Tensor latent = w.latent_down ? e.activations(e.config.expert_latent_size) : normed;
  if (w.latent_down)
    e.add("moe_latent_down", LinearArgs{.x = normed, .weights = {&w.latent_down, 1}, .out = latent});
  const Emitter::BlockOut sum = w.latent_up ? Emitter::BlockOut{e.f32(latent.cols), false} : out;
  const Tensor hidden = e.activations(e.config.expert_ffn_size, used);  // [tokens * used, ffn]
  e.add("moe_gate_up_swiglu", MoeGateUpArgs{.x = latent,
                                            .gate = w.gate,
                                            .up = w.up,
                                            .expert_ids = ids,
                                            .experts_used = used,
                                            .out = hidden,
                                            .activation = gate_of_experts(e.config.architecture),
                                            .gate_bias = w.gate_bias,
                                            .up_bias = w.up_bias,
                                            .input_weights = weights_input ? weights : Numbers<float>{}});
  e.add("moe_down",
        MoeDownArgs{.hidden = hidden,
                    .down = w.down,
                    .expert_ids = ids,
                    .expert_weights = weights_input ? Numbers<const float>(e.memory.ones) : weights,
                    .experts_used = used,
                    .out = sum.to,
                    .add_to_out = sum.add,
                    .bias = w.down_bias,
                    .follows_gate_up = true});
  if (w.latent_up) {
    const Tensor summed = e.activations(latent.cols);
    e.add("moe_latent_sum", NormArgs{.x = sum.to, .kind = NormKind::none, .out = summed});
    e.add("moe_latent_up",
          LinearArgs{.x = summed, .weights = {&w.latent_up, 1}, .out = out.to, .add_to_out = out.add});
  }
  if (w.shared_up && !w.expert_norm) emit_shared_experts(e, normed, out.to);
}

Tensor emit_experts_beside_dense(Emitter& e, const Tensor& x) {
  const LayerWeights& w = e.layer_weights();
  const float eps = e.config.norm_eps;
  const auto summed = [&](const char* name, const Tensor& part) {
    if (e.is_alone()) return part;
    const Tensor sum = e.f32(x.cols);
    e.all_reduce(name, part, sum, false, {});
    return sum;
  };
  const Tensor hidden = e.activations(e.config.shared_ffn_size);
  const Tensor dense_part = e.f32(x.cols), expert_part = e.f32(x.cols), routed = e.activations(x.cols);
  e.add({.name = "shared_gate_up_swiglu", .experts = 1, .experts_used = 1},
        GateUpArgs{.x = e.norm("ffn_norm", x, w.ffn_norm, {}),
                   .gate = w.shared_gate,
                   .up = w.shared_up,
                   .out = hidden,
                   .activation = e.config.architecture.gate});
  e.add({.name = "shared_down", .experts = 1, .experts_used = 1},
        LinearArgs{.x = hidden, .weights = {&w.shared_down, 1}, .out = dense_part});
  const Tensor dense = summed("shared_all_reduce", dense_part);
  e.add("shared_post_norm", NormArgs{.x = dense, .weight = w.shared_post_norm, .eps = eps, .out = dense});
  e.add("router_norm", NormArgs{.x = x,
                                .weight = w.router_scale,
                                .eps = eps,
                                .scale = 1.0f / std::sqrt(static_cast<float>(e.config.hidden_size)),
                                .out = routed});
  emit_experts(e, routed, e.norm("moe_norm", x, w.expert_norm, {}), {expert_part, false});
  e.add_normed("moe_post_norm", summed("moe_all_reduce", expert_part), w.expert_post_norm, dense);
  return dense;
}

}  // namespace minfer
