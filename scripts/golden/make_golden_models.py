#!/usr/bin/env python3
"""Writes tests/golden: tiny models of the architectures minfer knows, with the outputs Hugging Face transformers gives.

Each model has two to seven layers and random weights drawn by numpy from a fixed seed, is run by transformers in float64 on fixed
random tokens, and is written as NAME.gguf (F32, the names and layouts llama.cpp's converter uses) and NAME.logits:
int32 n, int32 vocab, int32 tokens[n], float32 logits[n][vocab], little-endian. golden.json lists the models with their
greedy continuations, the tolerance, and the evidence that the comparison means something:

  float32_nmse     the distance between transformers in float32 and in float64: what rounding alone costs
  controls         NMSE of the same weights with the feature under test switched off or changed; far above the tolerance,
                   so that an engine that ignores the feature fails
  router_margin    smallest relative gap between the last expert chosen and the first one left out, over tokens and layers
  greedy_margin    smallest gap between the best and the second-best logit of the greedy continuation
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys

try:
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"make_golden_models.py needs more packages: pip install numpy torch transformers ({error})")

from gguf_writer import GgufWriter, TensorType, ValueType

VOCAB = 288
GREEDY_TOKENS = 16
MAX_DRAWS = 400
NMSE_TOLERANCE = 1e-8
BASE_CONFIG = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager",
    "experts_implementation": "eager",  # the grouped matrix product does not support float64
}
# Head size 32, so that each boundary of a scaling method has some of the 16 frequencies on both sides.
SCALED = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}


def rope(kind, theta=10000.0, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **parameters}}


@dataclasses.dataclass(frozen=True)
class Case:
    """A model: a transformers class, its configuration on top of BASE_CONFIG, and what must not leave the logits alone."""

    name: str
    covers: str
    family: str  # transformers' class prefix: Llama, Mistral, ...
    arch: str  # GGUF's general.architecture
    config: dict
    controls: dict  # name -> configuration changes
    filled: dict = dataclasses.field(default_factory=dict)  # more controls: name -> (end of weight names, the value of all these weights)
    num_tokens: int = 32
    config_class: str = ""  # if it is not the family's name + Config
    names: dict = dataclasses.field(default_factory=dict)  # transformers' names of tensors that differ from LAYER_NAMES
    keys: dict = dataclasses.field(default_factory=dict)  # GGUF key without the architecture -> attribute of the configuration, or value


YARN_32 = {"factor": 4.0, "original_max_position_embeddings": 32}
YARN_BETAS = {**YARN_32, "beta_fast": 2.0, "beta_slow": 0.5}
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

# Two kinds of layers, as in most families with windows: a window of 8, far shorter than the text.
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 48}
SMALL_HEADS = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
WINDOWED = {**SMALL, "sliding_window": 8}
NO_WINDOWS = {"no windows": {"sliding_window": 1024}}
WINDOW_KEY = {"attention.sliding_window": "sliding_window"}
POST_NORMS = {"post_attention_layernorm.weight": "post_attention_norm.weight",
              "post_feedforward_layernorm.weight": "post_ffw_norm.weight"}
GEMMA_NORMS = {**POST_NORMS, "pre_feedforward_layernorm.weight": "ffn_norm.weight"}
CAPS = {"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping"}
GLM4_NORMS = {"post_self_attn_layernorm.weight": "post_attention_norm.weight",
              "post_attention_layernorm.weight": "ffn_norm.weight", "post_mlp_layernorm.weight": "post_ffw_norm.weight"}
LLAMA4_NAMES = {"feed_forward.gate_proj.weight": "ffn_gate.weight", "feed_forward.up_proj.weight": "ffn_up.weight",
                "feed_forward.down_proj.weight": "ffn_down.weight", "feed_forward.router.weight": "ffn_gate_inp.weight",
                "feed_forward.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
                "feed_forward.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
                "feed_forward.shared_expert.down_proj.weight": "ffn_down_shexp.weight"}
APERTUS_NORMS = {"attention_layernorm.weight": "attn_norm.weight", "feedforward_layernorm.weight": "ffn_norm.weight"}


GLM4_EXPERTS = {"n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 2,
                "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5, "attention_bias": True,
                "n_group": 1, "topk_group": 1, "pad_token_id": 0}
GLM4_CONTROLS = {"routing weights not normalised": {"norm_topk_prob": False}, "not scaled": {"routed_scaling_factor": 1.0},
                 "one expert": {"num_experts_per_tok": 1}}
GLM4_KEYS = {"expert_shared_count": "n_shared_experts", "leading_dense_block_count": "first_k_dense_replace",
             "expert_weights_scale": "routed_scaling_factor", "expert_weights_norm": "norm_topk_prob", "expert_gating_func": 2,
             "expert_group_count": "n_group", "expert_group_used_count": "topk_group"}
GRANITE_SCALES = {"embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.1, "logits_scaling": 4.0,
                  "tie_word_embeddings": False, "pad_token_id": 0, **rope("default", 1e4)}
GRANITE_KEYS = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}
GRANITE_CONTROLS = {"no scale of residuals": {"residual_multiplier": 1.0}, "one expert": {"num_experts_per_tok": 1}}
GRANITE_MOE_NAMES = {"block_sparse_moe.router.weight": "ffn_gate_inp.weight",
                     "block_sparse_moe.experts.down_proj": "ffn_down_exps.weight",
                     "shared_mlp.output_linear.weight": "ffn_down_shexp.weight"}


def gemma3_rope(factor=4.0, local_theta=10000.0):
    return {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": factor}}}


def gemma4_rope(rotated=0.25, local_theta=10000.0):
    return {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": local_theta},
        "full_attention": {"rope_type": "proportional", "partial_rotary_factor": rotated, "rope_theta": 500.0}}}


# The plain decoder, without the additions of the smaller models and of those with experts.
GEMMA4 = {**WINDOWED, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_global_key_value_heads": 1, "head_dim": 16, "global_head_dim": 48, "attention_k_eq_v": True,
          "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCAB, "num_kv_shared_layers": 0, "pad_token_id": 0,
          "final_logit_softcapping": 3.0, **gemma4_rope()}


def olmo3_rope(windowed="default"):
    full = {"rope_type": "yarn", "rope_theta": 10000.0, **YARN_32}
    return {"rope_parameters": {
        "sliding_attention": full if windowed == "yarn" else {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": full}}


def gpt_oss_rope(truncate=False):
    """A correction range of which neither end is a whole number."""
    return rope("yarn", 500.0, **YARN_BETAS, truncate=truncate)


def long_rope(long=(1.5, 2.0, 3.0, 4.0, 5.0, 6.0)):
    return rope("longrope", partial_rotary_factor=0.75, original_max_position_embeddings=32,
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=list(long))


# Latent attention with sizes that all differ; the config's head_dim is the size of the rotated elements.
LATENT = {"hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4, "qk_nope_head_dim": 12, "qk_rope_head_dim": 16,
          "head_dim": 16, "v_head_dim": 20, "kv_lora_rank": 24, "rms_norm_eps": 1e-6, "intermediate_size": 48, "pad_token_id": 0}
GROUPED_EXPERTS = {"first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
                   "n_shared_experts": 2, "moe_intermediate_size": 16, "routed_scaling_factor": 2.5}
GROUP_KEYS = {"leading_dense_block_count": "first_k_dense_replace", "expert_shared_count": "n_shared_experts",
              "expert_group_count": "n_group", "expert_group_used_count": "topk_group",
              "expert_weights_scale": "routed_scaling_factor"}
# Three of four layers have a state; value heads come in pairs.
DELTA_NETS = {**SMALL, "num_hidden_layers": 5, "head_dim": 16, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 12,
              "linear_value_head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "full_attention_interval": 4,
              "rms_norm_eps": 1e-6, "pad_token_id": 0}
DELTA_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24}
DELTA_KEYS = {"ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim", "ssm.group_count": "linear_num_key_heads",
              "ssm.time_step_rank": "linear_num_value_heads", "full_attention_interval": 4}
LFM2 = {**SMALL, "layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "norm_eps": 1e-5, "pad_token_id": 0, **rope("default", 1e4)}
LATENT_YARN = {**YARN_32, "mscale": 1.0, "mscale_all_dim": 1.0}


CASES = [
    Case("mixtral", "experts in arch llama, top 2 of 4, weights normalised over the chosen", "Mixtral", "llama",
         {"num_local_experts": 4, "num_experts_per_tok": 2, **rope("default", 1e6)},
         {"one expert": {"num_experts_per_tok": 1}, "every expert": {"num_experts_per_tok": 4}}),
    Case("qwen3moe", "experts, QK norm, head size 16 of hidden 64 / 2 heads", "Qwen3Moe", "qwen3moe",
         {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 96,
          "num_attention_heads": 2, "num_key_value_heads": 1, "norm_topk_prob": True, "rms_norm_eps": 1e-6,
          **rope("default", 1e6)},
         {"routing weights not normalised": {"norm_topk_prob": False}, "one expert": {"num_experts_per_tok": 1}}),
    Case("olmoe", "experts, weights not normalised, QK norm over all heads", "Olmoe", "olmoe",
         {**SMALL, "num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 32, "norm_topk_prob": False, "pad_token_id": 0,
          **rope("default", 1e4)},
         {"routing weights normalised": {"norm_topk_prob": True}, "one expert": {"num_experts_per_tok": 1}}),
    Case("qwen2moe", "experts, weights not normalised, shared experts with a gate", "Qwen2Moe", "qwen2moe",
         {**SMALL, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": False,
          "shared_expert_intermediate_size": 64, "rms_norm_eps": 1e-6, "use_sliding_window": False, **rope("default", 1e6)},
         {"routing weights normalised": {"norm_topk_prob": True}, "one expert": {"num_experts_per_tok": 1}},
         keys={"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}),
    Case("gpt-oss", "sinks, windows in every other layer, clamped SwiGLU, biases of all products and experts, YaRN without rounding",
         "GptOss", "gpt-oss",
         {**WINDOWED, "num_hidden_layers": 3, "head_dim": 32, "intermediate_size": 32, "num_local_experts": 4, "num_experts_per_tok": 2, "tie_word_embeddings": False,
          "attention_bias": True, "pad_token_id": 0, **gpt_oss_rope()},
         {**NO_WINDOWS, "YaRN with rounding": gpt_oss_rope(truncate=True), "one expert": {"num_experts_per_tok": 1},
          "no clamp": {"swiglu_limit": 1e6}, "another slope": {"swiglu_alpha": 1.0}},
         filled={"no sinks": ("sinks", -1e9), "no biases of routers": ("router.bias", 0), "no biases of gate and up": ("up_proj_bias", 0),
                 "no biases of down": ("down_proj_bias", 0), "no biases of attention's output": ("o_proj.bias", 0)},
         num_tokens=72, names={"post_attention_layernorm.weight": "post_attention_norm.weight"},
         keys={**WINDOW_KEY, "expert_feed_forward_length": "intermediate_size"}),
    Case("glm4moe", "sigmoid routing with a bias of the choice, shared experts, a dense layer first, rotation of half a head",
         "Glm4Moe", "glm4moe",
         {**SMALL, "num_hidden_layers": 3, **GLM4_EXPERTS, **rope("default", 1e4, partial_rotary_factor=0.5)},
         GLM4_CONTROLS, filled={"no bias of the choice": ("e_score_correction_bias", 0)},
         names={"post_attention_layernorm.weight": "post_attention_norm.weight"}, keys=GLM4_KEYS),
    Case("glm4moe-qk-norm", "the same with QK norm and two dense layers", "Glm4Moe", "glm4moe",
         {**SMALL, "num_hidden_layers": 3, **GLM4_EXPERTS, "first_k_dense_replace": 2, "use_qk_norm": True,
          **rope("default", 1e4, partial_rotary_factor=0.5)},
         GLM4_CONTROLS, names={"post_attention_layernorm.weight": "post_attention_norm.weight"}, keys=GLM4_KEYS),
    Case("granitemoe", "experts with scales of embeddings, residuals, attention and logits", "GraniteMoe", "granitemoe",
         {**SMALL, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32, **GRANITE_SCALES},
         GRANITE_CONTROLS, names=GRANITE_MOE_NAMES, keys=GRANITE_KEYS),
    Case("granitemoe-shared", "the same with shared experts", "GraniteMoeShared", "granitemoe",
         {**SMALL, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32, "shared_intermediate_size": 64,
          **GRANITE_SCALES},
         GRANITE_CONTROLS, names=GRANITE_MOE_NAMES,
         keys={**GRANITE_KEYS, "expert_shared_feed_forward_length": "shared_intermediate_size"}),
    Case("llama-yarn", "YaRN with the default betas, three times past the original context", "Llama", "llama",
         {**SCALED, "max_position_embeddings": 128, **rope("yarn", **YARN_32)},
         {"no scaling": rope("default"), "linear": rope("linear", factor=4.0),
          "attention factor 1": rope("yarn", **YARN_32, attention_factor=1.0)}, num_tokens=96),
    Case("llama-yarn-betas", "YaRN with betas of its own: a ramp that starts above frequency 0", "Llama", "llama",
         {**SCALED, "max_position_embeddings": 128, **rope("yarn", 500.0, **YARN_BETAS)},
         {"default betas": rope("yarn", 500.0, **YARN_32), "no scaling": rope("default", 500.0)}, num_tokens=96),
    Case("llama-llama3", "llama3 scaling, as the tensor rope_freqs.weight", "Llama", "llama",
         {**SCALED, **rope("llama3", 500.0, **LLAMA3)},
         {"no scaling": rope("default", 500.0), "linear": rope("linear", 500.0, factor=8.0)}, num_tokens=64),
    Case("llama-linear", "linear scaling", "Llama", "llama", {**SCALED, **rope("linear", factor=4.0)},
         {"no scaling": rope("default")}, num_tokens=48),
    Case("mistral", "Mistral as arch llama, own output matrix", "Mistral", "llama",
         {"tie_word_embeddings": False, "sliding_window": None, **rope("default", 1e6)},
         {"another RoPE base": rope("default", 1e4)}),
    Case("mistral-head-dim", "head size 16 of hidden 64 / 2 heads", "Mistral", "llama",
         {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 96, "sliding_window": None,
          **rope("default", 1e6)},
         {"another RoPE base": rope("default", 1e4)}),
    Case("qwen2-tied", "biases on Q, K and V, no output.weight", "Qwen2", "qwen2",
         {"rms_norm_eps": 1e-6, "use_sliding_window": False, **rope("default", 1e6)},
         {"another RoPE base": rope("default", 1e4)}),
    Case("mistral-window", "a window in every layer", "Mistral", "llama",
         {**WINDOWED, **rope("default", 1e4)}, NO_WINDOWS, num_tokens=48, keys=WINDOW_KEY),
    Case("gemma", "scaled embeddings, GeGLU, norms of 1 + w", "Gemma", "gemma",
         {**SMALL, "hidden_activation": "gelu_pytorch_tanh", **rope("default", 1e4)},
         {"SwiGLU": {"hidden_act": "silu", "hidden_activation": "silu"}}),
    Case("gemma2", "windows in every other layer, caps of attention and logits, norms on both sides", "Gemma2", "gemma2",
         {**WINDOWED, "num_hidden_layers": 3, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0,
          "final_logit_softcapping": 3.0, **rope("default", 1e4)},
         {**NO_WINDOWS, "no cap of attention": {"attn_logit_softcapping": None},
          "no cap of logits": {"final_logit_softcapping": None},
          "windows in the other layers": {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}},
         num_tokens=48, names=GEMMA_NORMS, keys={**WINDOW_KEY, **CAPS}),
    Case("gemma3", "windows in five layers of six, each kind with its rotary table, QK norm", "Gemma3", "gemma3",
         {**WINDOWED, "num_hidden_layers": 7, "query_pre_attn_scalar": 16, **gemma3_rope()},
         {**NO_WINDOWS, "another base of windows": gemma3_rope(local_theta=100.0), "no scaling": gemma3_rope(1.0)},
         num_tokens=48, config_class="Gemma3TextConfig", names=GEMMA_NORMS, keys=WINDOW_KEY),
    Case("gemma3-full", "no windows, caps of logits", "Gemma3", "gemma3",
         {**SMALL, "query_pre_attn_scalar": 16, "final_logit_softcapping": 3.0, "layer_types": ["full_attention"] * 2, **gemma3_rope()},
         {"no scaling": gemma3_rope(1.0), "no cap of logits": {"final_logit_softcapping": None}},
         config_class="Gemma3TextConfig", names=GEMMA_NORMS, keys={"final_logit_softcapping": "final_logit_softcapping"}),
    Case("gemma4", "heads of two sizes with KV heads of each, values that are keys in full layers, norms of values without weights,"
         " scores that are not scaled, rotation of a quarter of the pairs in full layers, a scale behind each layer", "Gemma4", "gemma4",
         GEMMA4, {**NO_WINDOWS, "whole rotation": gemma4_rope(1.0), "another base of windows": gemma4_rope(local_theta=100.0),
                  "no cap of logits": {"final_logit_softcapping": None}},
         filled={"no scale behind layers": ("layer_scalar", 1)}, num_tokens=48, config_class="Gemma4TextConfig",
         names={**GEMMA_NORMS, "layer_scalar": "layer_output_scale.weight"},
         keys={**WINDOW_KEY, "final_logit_softcapping": "final_logit_softcapping", "attention.shared_kv_layers": 0,
               "embedding_length_per_layer_input": 0}),
    Case("phi3", "Phi-3: fused qkv and gate-up, a window in every layer", "Phi3", "phi3",
         {**WINDOWED, "pad_token_id": 0, **rope("default", 1e4)}, NO_WINDOWS, num_tokens=48, keys=WINDOW_KEY),
    Case("phi4-mini", "LongRoPE beyond the original context, rotation of three quarters of a head", "Phi3", "phi3",
         {**SMALL, "pad_token_id": 0, "max_position_embeddings": 128, "original_max_position_embeddings": 32,
          **long_rope()},
         {"no scaling": rope("default", partial_rotary_factor=0.75), "other factors": long_rope((1, 1, 1, 1, 2, 2))},
         num_tokens=96),
    Case("smollm3", "every fourth layer without positions", "SmolLM3", "smollm3",
         {**SMALL, "num_hidden_layers": 5, "pad_token_id": 0, **rope("default", 1e4)},
         {"positions everywhere": {"no_rope_layers": [1] * 5}}, num_tokens=48),
    Case("olmo2", "norms behind blocks alone, QK norm over all heads", "Olmo2", "olmo2",
         {"pad_token_id": 0, **rope("default", 1e4)}, {"another RoPE base": rope("default", 100.0)}, names=POST_NORMS),
    Case("olmo3", "the same with windows in three layers of four, YaRN in the others alone", "Olmo3", "olmo2",
         {**WINDOWED, "num_hidden_layers": 5, "pad_token_id": 0, **olmo3_rope()},
         {**NO_WINDOWS, "YaRN everywhere": olmo3_rope("yarn")}, num_tokens=48, names=POST_NORMS, keys=WINDOW_KEY),
    Case("granite", "scales of embeddings, residuals, attention and logits", "Granite", "granite",
         GRANITE_SCALES,
         {"no scale of embeddings": {"embedding_multiplier": 1.0}, "of residuals": {"residual_multiplier": 1.0},
          "of attention": {"attention_multiplier": 0.25}, "of logits": {"logits_scaling": 1.0}}, keys=GRANITE_KEYS),
    Case("glm4", "interleaved rotation of half a head, norms on both sides, biases, fused gate-up", "Glm4", "glm4",
         {"attention_bias": True, "pad_token_id": 0, **rope("default", 1e4, partial_rotary_factor=0.5)},
         {"rotation of whole heads": rope("default", 1e4, partial_rotary_factor=1.0)}, names=GLM4_NORMS),
    Case("command-r", "blocks in parallel behind one layer norm, scaled logits", "Cohere", "command-r",
         {"logit_scale": 0.25, "layer_norm_eps": 1e-5, "use_qk_norm": False, "pad_token_id": 0, **rope("default", 1e4)},
         {"logits not scaled": {"logit_scale": 1.0}, "another RoPE base": rope("default", 100.0)},
         keys={"logit_scale": "logit_scale"}),
    Case("command-r-plus", "the same with layer norms of Q and K, whose weights each head has of its own", "Cohere", "command-r",
         {**SMALL_HEADS, "logit_scale": 0.25, "layer_norm_eps": 1e-5, "use_qk_norm": True, "pad_token_id": 0, **rope("default", 1e4)},
         {"logits not scaled": {"logit_scale": 1.0}}, filled={"one weight for all heads": ("_norm.weight", 1.5)},
         keys={"logit_scale": "logit_scale"}),
    Case("command-r7b", "the same with windows, and no positions in layers without", "Cohere2", "cohere2",
         {**WINDOWED, "num_hidden_layers": 5, "logit_scale": 0.5, "layer_norm_eps": 1e-5, "pad_token_id": 0,
          **rope("default", 1e4)},
         {**NO_WINDOWS, "logits not scaled": {"logit_scale": 1.0}}, num_tokens=48,
         keys={**WINDOW_KEY, "logit_scale": "logit_scale"}),
    Case("starcoder2", "layer norms, GELU without a gate, biases everywhere, a window", "Starcoder2", "starcoder2",
         {**WINDOWED, "tie_word_embeddings": False, "norm_epsilon": 1e-5, "use_bias": True, "pad_token_id": 0,
          **rope("default", 1e4)},
         {**NO_WINDOWS, "ReLU": {"hidden_act": "relu"}}, num_tokens=48,
         names={"mlp.c_fc.weight": "ffn_up.weight", "mlp.c_fc.bias": "ffn_up.bias",
                "mlp.c_proj.weight": "ffn_down.weight", "mlp.c_proj.bias": "ffn_down.bias"}, keys=WINDOW_KEY),
    Case("stablelm", "layer norms, rotation of a quarter of a head", "StableLm", "stablelm",
         {"layer_norm_eps": 1e-5, "use_qkv_bias": True, "pad_token_id": 0,
          **rope("default", 1e4, partial_rotary_factor=0.25)},
         {"rotation of whole heads": rope("default", 1e4, partial_rotary_factor=1.0)}),
    Case("stablelm-parallel", "the same with blocks in parallel", "StableLm", "stablelm",
         {"layer_norm_eps": 1e-5, "use_parallel_residual": True, "pad_token_id": 0,
          **rope("default", 1e4, partial_rotary_factor=0.25)},
         {"rotation of whole heads": rope("default", 1e4, partial_rotary_factor=1.0)}),
    Case("stablelm-12b", "the same with layer norms of Q and K, whose weights each head has of its own", "StableLm", "stablelm",
         {**SMALL_HEADS, "layer_norm_eps": 1e-5, "use_parallel_residual": True, "qk_layernorm": True, "tie_word_embeddings": False,
          "pad_token_id": 0, **rope("default", 1e4, partial_rotary_factor=0.5)},
         {"rotation of whole heads": rope("default", 1e4, partial_rotary_factor=1.0)},
         filled={"one weight for all heads": (tuple(f"norms.{head}.weight" for head in range(4)), 1)}),
    Case("internlm2", "Llama's shape under its name", "Llama", "internlm2",
         {**SMALL, **rope("default", 1e6)}, {"another RoPE base": rope("default", 1e4)}),
    Case("ernie4_5", "interleaved rotation without permuted rows", "Ernie4_5", "ernie4_5",
         {**SMALL, "use_bias": False, "pad_token_id": 0, **rope("default", 5e5)},
         {"another RoPE base": rope("default", 1e4)}),
    Case("seed-oss", "biases on Q, K and V, a norm under another name", "SeedOss", "seed_oss",
         {**SMALL, "attention_bias": True, "pad_token_id": 0, **rope("default", 1e6)},
         {"another RoPE base": rope("default", 1e4)},
         names={"post_attention_layernorm.weight": "post_attention_norm.weight"}),
    Case("apertus", "xIELU without a gate, QK norm, llama3 scaling", "Apertus", "apertus",
         {**SCALED, "pad_token_id": 0, **rope("llama3", 500.0, **LLAMA3)},
         {"no scaling": rope("default", 500.0), "GELU": {"hidden_act": "gelu"}}, num_tokens=64, names=APERTUS_NORMS),
    Case("llama4", "chunks in three layers of four, queries that grow with their position and no positions in the others, QK norm without weights,"
         " experts in every other layer, sigmoid routing that weighs what experts are given, a shared expert", "Llama4", "llama4",
         {**SMALL, "num_hidden_layers": 5, "intermediate_size": 32, "intermediate_size_mlp": 48, "attention_chunk_size": 8,
          "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2, "floor_scale": 8, "attn_scale": 0.3,
          "pad_token_id": 0, **rope("default", 1e4)},
         {"no chunks": {"attention_chunk_size": 1024}, "other chunks": {"attention_chunk_size": 12},
          "no temperature": {"attn_temperature_tuning": False}, "no QK norm": {"use_qk_norm": False},
          "positions everywhere": {"no_rope_layers": [1] * 5}, "one expert": {"num_experts_per_tok": 1}},
         num_tokens=48, config_class="Llama4TextConfig", names=LLAMA4_NAMES,
         keys={"attention.sliding_window": "attention_chunk_size", "attention.temperature_length": "floor_scale",
               "attention.temperature_scale": "attn_scale", "interleave_moe_layer_step": "interleave_moe_layer_step",
               "expert_feed_forward_length": "intermediate_size"}),
    Case("llama4-dense", "no experts, no windows, positions and QK norm everywhere", "Llama4", "llama4",
         {**SMALL, "intermediate_size_mlp": 48, "num_local_experts": 0, "moe_layers": [], "no_rope_layers": [1, 1],
          "layer_types": ["full_attention"] * 2, "pad_token_id": 0, **rope("default", 1e4)},
         {"no QK norm": {"use_qk_norm": False}, "no positions": {"no_rope_layers": [1, 0]}},
         config_class="Llama4TextConfig", names=LLAMA4_NAMES,
         keys={"attention.sliding_window": 0, "interleave_moe_layer_step": 0, "expert_feed_forward_length": "intermediate_size"}),
    Case("deepseek-v2", "latent attention, queries without a rank, keys and values in one tensor; softmax routing in groups",
         "DeepseekV2", "deepseek2",
         {**LATENT, **GROUPED_EXPERTS, "q_lora_rank": None, "topk_method": "group_limited_greedy", **rope("default", 1e4)},
         {"another RoPE base": rope("default", 1e2), "no groups": {"topk_method": "greedy"},
          "weights not scaled": {"routed_scaling_factor": 1.0}},
         num_tokens=48, keys={**GROUP_KEYS, "expert_gating_func": 1}),
    Case("deepseek-v3", "latent attention, queries with a rank, a tensor each for keys and values, YaRN of whole heads; sigmoid routing",
         "DeepseekV3", "deepseek2",
         {**LATENT, **GROUPED_EXPERTS, "q_lora_rank": 20, "norm_topk_prob": True, **rope("yarn", **LATENT_YARN)},
         {"no scaling": rope("default", 1e4), "scores as without scaling": rope("yarn", **YARN_32, attention_factor=1.0),
          "no groups": {"n_group": 1, "topk_group": 1}, "weights not normalised": {"norm_topk_prob": False}},
         num_tokens=96, keys={**GROUP_KEYS, "expert_weights_norm": "norm_topk_prob", "expert_gating_func": 2}),
    Case("qwen3next", "gated delta nets in three layers of four, heads of attention with gates, rotation of a quarter of a head, QK norm,"
         " experts and a shared one with a gate", "Qwen3Next", "qwen3next",
         {**DELTA_NETS, **DELTA_EXPERTS, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": [],
          **rope("default", 1e4, partial_rotary_factor=0.25)},
         {"rotation of whole heads": rope("default", 1e4, partial_rotary_factor=1.0),
          "weights not normalised": {"norm_topk_prob": False}},
         filled={"no memory": ("A_log", 9.0), "every update in full": ("in_proj_ba.weight", 0), "an even convolution": ("conv1d.weight", 0.5),
                 "one norm behind the rule": ("linear_attn.norm.weight", 1), "no dt_bias": ("dt_bias", 0)},
         num_tokens=96, names={"post_attention_layernorm.weight": "post_attention_norm.weight"},
         keys={**DELTA_KEYS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"}),
    Case("qwen35", "gated delta nets whose value heads go with key heads in turn, beta and alpha of products of their own, dense layers",
         "Qwen3_5", "qwen35",
         {**DELTA_NETS, "linear_num_value_heads": 6, **rope("default", 1e4, partial_rotary_factor=0.25)},
         {"rotation of whole heads": rope("default", 1e4, partial_rotary_factor=1.0)},
         filled={"no memory": ("A_log", 9.0), "every update in full": ("in_proj_b.weight", 0), "no alpha": ("in_proj_a.weight", 0),
                 "an even convolution": ("conv1d.weight", 0.5), "no dt_bias": ("dt_bias", 0)},
         num_tokens=96, config_class="Qwen3_5TextConfig", names={"post_attention_layernorm.weight": "post_attention_norm.weight"},
         keys=DELTA_KEYS),
    Case("qwen35moe", "the same with experts and a shared one with a gate", "Qwen3_5Moe", "qwen35moe",
         {**DELTA_NETS, **DELTA_EXPERTS, **rope("default", 1e4, partial_rotary_factor=0.25)},
         {"one expert": {"num_experts_per_tok": 1}},
         filled={"no memory": ("A_log", 9.0), "every update in full": ("in_proj_b.weight", 0), "no alpha": ("in_proj_a.weight", 0)},
         num_tokens=96, config_class="Qwen3_5MoeTextConfig", names={"post_attention_layernorm.weight": "post_attention_norm.weight"},
         keys={**DELTA_KEYS, "expert_shared_feed_forward_length": "shared_expert_intermediate_size"}),
    Case("lfm2", "gated short convolutions in three layers of five, QK norm", "Lfm2", "lfm2",
         {**LFM2, "num_hidden_layers": 5, "layer_types": ["conv", "full_attention"] * 2 + ["conv"], "block_auto_adjust_ff_dim": False},
         {"another RoPE base": rope("default", 1e2)},
         filled={"an even convolution": ("conv.conv.weight", 0.5), "no QK norm weights": ("q_layernorm.weight", 1)},
         num_tokens=48, keys={"shortconv.l_cache": "conv_L_cache"}),
    Case("lfm2moe", "the same over four tokens with biases, and experts behind a dense layer: sigmoid routing with a bias of the choice",
         "Lfm2Moe", "lfm2moe",
         {**LFM2, "conv_L_cache": 4, "conv_bias": True, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
          "num_dense_layers": 1, "norm_topk_prob": True, "use_expert_bias": True},
         {"one expert": {"num_experts_per_tok": 1}, "weights not normalised": {"norm_topk_prob": False}},
         filled={"an even convolution": ("conv.conv.weight", 0.5), "no bias of the choice": ("expert_bias", 0),
                 "no bias of convolutions": ("conv.conv.bias", 0), "none in front": ("in_proj.bias", 0), "none behind": ("conv.out_proj.bias", 0)},
         keys={"shortconv.l_cache": "conv_L_cache", "leading_dense_block_count": "num_dense_layers", "expert_gating_func": 2}),
]

# Parameters of experts that are two tensors in GGUF, [num_experts, gate rows then up rows, hidden].
FUSED_EXPERTS = ("mlp.experts.gate_up_proj", "block_sparse_moe.experts.gate_up_proj", "feed_forward.experts.gate_up_proj")
# transformers' parameter names without "model.layers.N." -> GGUF's without "blk.N."
LAYER_NAMES = {
    "input_layernorm.weight": "attn_norm.weight", "post_attention_layernorm.weight": "ffn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.q_proj.bias": "attn_q.bias",
    "self_attn.k_proj.weight": "attn_k.weight", "self_attn.k_proj.bias": "attn_k.bias",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.v_proj.bias": "attn_v.bias",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight", "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.experts.down_proj": "ffn_down_exps.weight",
    "input_layernorm.bias": "attn_norm.bias", "post_attention_layernorm.bias": "ffn_norm.bias",
    "self_attn.o_proj.bias": "attn_output.bias", "self_attn.qkv_proj.weight": "attn_qkv.weight",
    "mlp.gate_up_proj.weight": "ffn_up.weight", "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight", "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_experts.gate_proj.weight": "ffn_gate_shexp.weight", "mlp.shared_experts.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_experts.down_proj.weight": "ffn_down_shexp.weight",
    "self_attn.sinks": "attn_sinks.weight", "mlp.router.weight": "ffn_gate_inp.weight", "mlp.router.bias": "ffn_gate_inp.bias",
    "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
    "self_attn.q_a_proj.weight": "attn_q_a.weight", "self_attn.q_a_layernorm.weight": "attn_q_a_norm.weight",
    "self_attn.q_b_proj.weight": "attn_q_b.weight", "self_attn.kv_a_proj_with_mqa.weight": "attn_kv_a_mqa.weight",
    "linear_attn.in_proj_ba.weight": "ssm_ba.weight", "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight", "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight", "linear_attn.conv1d.weight": "ssm_conv1d.weight", "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias", "linear_attn.norm.weight": "ssm_norm.weight", "linear_attn.out_proj.weight": "ssm_out.weight",
    "self_attn.kv_a_layernorm.weight": "attn_kv_a_norm.weight", "self_attn.kv_b_proj.weight": "attn_kv_b.weight",
    "operator_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight", "self_attn.out_proj.weight": "attn_output.weight",
    "self_attn.q_layernorm.weight": "attn_q_norm.weight", "self_attn.k_layernorm.weight": "attn_k_norm.weight",
    **{f"conv.{part}.{kind}": f"shortconv.{part}.{kind}" for part in ("in_proj", "conv", "out_proj") for kind in ("weight", "bias")},
    "feed_forward.w1.weight": "ffn_gate.weight", "feed_forward.w3.weight": "ffn_up.weight", "feed_forward.w2.weight": "ffn_down.weight",
    "feed_forward.gate.weight": "ffn_gate_inp.weight", "feed_forward.expert_bias": "exp_probs_b.bias", "feed_forward.experts.down_proj": "ffn_down_exps.weight",
}
CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")  # buffers
DELTA_FAMILIES = ("Qwen3Next", "Qwen3_5", "Qwen3_5Moe")
# Architectures whose converters reorder the rows of Q and K from halves to pairs.
REORDERED = ("llama", "smollm3", "granite", "granitemoe", "internlm2")
OTHER_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
               "model.norm.bias": "output_norm.bias", "lm_head.weight": "output.weight",
               "model.embedding_norm.weight": "token_embd_norm.weight"}


def make_config(case, changes=None):
    config_class = getattr(transformers, case.config_class or case.family + "Config")
    return config_class(**{**BASE_CONFIG, **case.config, **(changes or {})})


def make_model(case, weights, dtype, changes=None):
    """The transformers model with these weights, by its parameter names, in `dtype`."""
    model = getattr(transformers, case.family + "ForCausalLM")(make_config(case, changes)).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
        for name, buffer in model.named_buffers():
            if name in weights:
                buffer.copy_(torch.from_numpy(weights[name]))
        for activation in xielu_modules(model):
            activation.beta.fill_(activation._beta_scalar)  # they are created in bf16
            activation.eps.fill_(activation._eps_scalar)
    return model


def xielu_modules(model):
    return [module for module in model.modules() if type(module).__name__ == "XIELUActivation"]


def adds_one(case):
    """Whether norms multiply by 1 + w: Gemma's do, up to the third, and those of Qwen's hybrids, but for that behind the delta rule."""
    return case.family in ("Gemma", "Gemma2", "Gemma3", *DELTA_FAMILIES)


def draw_weights(case, rng):
    """name -> float32 array for every parameter. Gains keep attention selective and routing decided: with transformers' own
    initialisation (0.02) attention is almost uniform and no positional encoding shows in the logits."""
    config = make_config(case)
    # The shapes of a model on the meta device, which neither allocates nor initialises.
    with torch.device("meta"):
        model = getattr(transformers, case.family + "ForCausalLM")(config)
    weights = {}
    choices = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(CHOICE_BIASES + ("layer_scalar",))]
    for name, parameter in sorted([*model.named_parameters(), *choices]):
        shape = tuple(parameter.shape)
        noise = rng.standard_normal(shape, dtype=np.float32)
        if "norm" in name and name.endswith(".weight"):
            offset = np.float32(1.0 if adds_one(case) and "linear_attn" not in name else 0.0)
            of_heads = 0.6 if case.family == "Gemma4" else 1.5  # unscaled scores grow with the size of the heads
            weights[name] = np.float32(of_heads if "q_norm" in name or "k_norm" in name else 1.0) + np.float32(0.1) * noise - offset
        elif name.endswith("layer_scalar"):
            weights[name] = np.float32(0.6) + np.float32(0.1) * noise
        elif name.endswith("A_log"):  # decays over some tokens and over many
            weights[name] = np.linspace(-3, 1, shape[0], dtype=np.float32) + np.float32(0.1) * noise
        elif "alpha" in name:
            weights[name] = np.float32(0.8) + np.float32(0.1) * noise
        elif name.endswith(CHOICE_BIASES):
            weights[name] = np.float32(0.1) * noise
        elif name.endswith(".sinks"):
            weights[name] = noise
        elif name.endswith("bias"):
            weights[name] = np.float32(0.5) * noise
        elif case.family == "GptOss" and ".experts." in name:
            # Stored transposed, and large enough for the clamp to matter.
            gain = 6.0 if name.endswith("gate_up_proj") else 1.0
            weights[name] = np.float32(gain / np.sqrt(shape[-2])) * noise
        elif case.family == "Llama4" and ".experts." in name:  # [num_experts, in, out]
            weights[name] = np.float32(1.0 / np.sqrt(shape[-2])) * noise
        elif "embed_tokens" in name:
            # Small beside the outputs of the layers, or a tied model would repeat its input for ever.
            weights[name] = np.float32(0.1) * noise
        else:
            decides = ("q_proj.weight", "qkv_proj.weight", "k_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
                       "mlp.gate.weight", "feed_forward.gate.weight", "lm_head.weight", "router.weight")
            gain = 2.0 if name.endswith(decides) else 1.0
            weights[name] = np.float32(gain / np.sqrt(shape[-1])) * noise
    return weights


def interleave_heads(weight, num_heads):
    """Rows of Q or K, reordered so that RoPE's pairs (i, i + d/2) of a head become (2i, 2i + 1): arch llama's order."""
    rows = weight.shape[0]
    halves = weight.reshape(num_heads, 2, rows // num_heads // 2, *weight.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(weight.shape)


def split_latent(config, weight):
    """Of each head the keys' weights, transposed, and the values', as converters write them since April 2025."""
    heads = weight.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
    keys, values = np.split(heads, [config.qk_nope_head_dim], axis=1)
    return np.ascontiguousarray(keys.swapaxes(1, 2)), np.ascontiguousarray(values)


def split_delta_heads(config, weight):
    """Of each key head rows of q, k, its value heads' v and their z; converters write those of all q, k and v, and those of all z."""
    heads = weight.reshape(config.linear_num_key_heads, -1, weight.shape[1])
    key = config.linear_key_head_dim
    values = config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
    q, k, v, z = (part.reshape(-1, weight.shape[1]) for part in np.split(heads, np.cumsum([key, key, values]), axis=1))
    return np.concatenate([q, k, v]), np.ascontiguousarray(z)


def values_in_turn(config, name, weight):
    """Qwen3.5's converter has the value heads of key heads in turn instead of side by side, wherever they count."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads

    def in_turn(part, axis=0):
        heads = part.reshape(*part.shape[:axis], keys, values // keys, -1, *part.shape[axis + 1:])
        return np.ascontiguousarray(heads.swapaxes(axis, axis + 1)).reshape(part.shape)

    if name == "norm.weight":
        return weight
    if name == "out_proj.weight":
        return in_turn(weight, axis=1)
    others = 2 * keys * config.linear_key_head_dim if name in ("in_proj_qkv.weight", "conv1d.weight") else 0  # q and k
    return np.concatenate([weight[:others], in_turn(weight[others:])])


def llama3_rope_factors(config):
    """Divisors of the RoPE frequencies, [head_dim / 2]: 1 for short wavelengths, `factor` for long ones, between in between."""
    scaling = config.rope_parameters
    pairs = np.arange(0, config.head_dim, 2) / config.head_dim
    turns = scaling["original_max_position_embeddings"] / (2 * np.pi * scaling["rope_theta"] ** pairs)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / scaling["factor"] + smooth)).astype(np.float32)


def proportional_rope_factors(config):
    """Divisors of the RoPE frequencies of full layers, [head size / 2]: 1 for the pairs that are rotated, 1e30 for the others."""
    pairs = head_sizes(config)["full_attention"] // 2
    rotated = int(pairs * full_rope(config)["partial_rotary_factor"])
    return np.array([1.0] * rotated + [1e30] * (pairs - rotated), dtype=np.float32)


def head_sizes(config):
    """Head sizes of kinds of layers that differ, by transformers' name of the kind."""
    return {kind: config.per_layer_config[kind].head_dim for kind in set(config.layer_types)}


def gpt_oss_experts(block, rest, weight):
    """gpt-oss has gate and up in turn, and its matrices [num_experts, in, out]."""
    name = rest.removeprefix("mlp.experts.")
    kind = "bias" if name.endswith("_bias") else "weight"
    out_rows = weight if kind == "bias" else weight.swapaxes(1, 2)
    if name.startswith("down"):
        return {f"{block}ffn_down_exps.{kind}": np.ascontiguousarray(out_rows)}
    return {f"{block}ffn_gate_exps.{kind}": np.ascontiguousarray(out_rows[:, ::2]),
            f"{block}ffn_up_exps.{kind}": np.ascontiguousarray(out_rows[:, 1::2])}


def llama4_experts(block, rest, weight):
    """Matrices are [num_experts, in, out], with gate in front of up."""
    rows = np.ascontiguousarray(weight.swapaxes(1, 2))
    if rest.endswith("down_proj"):
        return {f"{block}ffn_down_exps.weight": rows}
    gate, up = np.split(rows, 2, axis=1)
    return {f"{block}ffn_gate_exps.weight": gate, f"{block}ffn_up_exps.weight": up}


def gguf_tensors(case, weights):
    """GGUF name -> float32 array; experts are [num_experts, rows, cols]."""
    config = make_config(case)
    tensors = {}
    for name, weight in weights.items():
        if name in OTHER_NAMES:
            is_gemma_norm = adds_one(case) and name == "model.norm.weight"
            tensors[OTHER_NAMES[name]] = weight + np.float32(1.0) if is_gemma_norm else weight
            continue
        _, _, layer, rest = name.split(".", 3)
        block = f"blk.{layer}."
        if case.family == "GptOss" and rest.startswith("mlp.experts."):
            tensors.update(gpt_oss_experts(block, rest, weight))
            continue
        if case.family == "Llama4" and rest.startswith("feed_forward.experts."):
            tensors.update(llama4_experts(block, rest, weight))
            continue
        if rest in FUSED_EXPERTS or rest == "shared_mlp.input_linear.weight":  # rows of gate, then of up
            gate, up = np.split(weight, 2, axis=-2)
            suffix = "exps" if rest in FUSED_EXPERTS else "shexp"
            tensors[f"{block}ffn_gate_{suffix}.weight"] = np.ascontiguousarray(gate)
            tensors[f"{block}ffn_up_{suffix}.weight"] = np.ascontiguousarray(up)
            continue
        if ".alpha_" in rest:
            continue  # metadata
        if "_layernorm.norms." in rest:  # one parameter for each head, in order
            of_heads = f"{block}attn_{rest.split('.')[1][0]}_norm.weight"
            tensors[of_heads] = np.stack([*tensors.get(of_heads, []), weight])
            continue
        if case.family == "DeepseekV3" and rest == "self_attn.kv_b_proj.weight":
            keys, values = split_latent(config, weight)
            tensors[block + "attn_k_b.weight"], tensors[block + "attn_v_b.weight"] = keys, values
            continue
        if rest == "linear_attn.in_proj_qkvz.weight":
            qkv, z = split_delta_heads(config, weight)
            tensors[block + "attn_qkv.weight"], tensors[block + "attn_gate.weight"] = qkv, z
            continue
        if case.family.startswith("Qwen3_5") and rest.startswith("linear_attn."):
            weight = values_in_turn(config, rest.removeprefix("linear_attn."), weight)
        if rest == "linear_attn.A_log":
            weight = -np.exp(weight)
        if rest in ("linear_attn.conv1d.weight", "conv.conv.weight"):
            weight = weight.squeeze(1)
        if adds_one(case) and name.endswith("norm.weight") and not rest.startswith("linear_attn"):
            weight = weight + np.float32(1.0)
        if case.arch in REORDERED and "q_proj" in rest:
            weight = interleave_heads(weight, config.num_attention_heads)
        if case.arch in REORDERED and "k_proj" in rest:
            weight = interleave_heads(weight, config.num_key_value_heads)
        if rest == "mlp.shared_expert_gate.weight":
            weight = weight[0]
        tensors[block + {**LAYER_NAMES, **case.names}[rest]] = weight
    parameters = full_rope(config)
    if parameters["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = llama3_rope_factors(config)
    if parameters["rope_type"] == "proportional":
        tensors["rope_freqs.weight"] = proportional_rope_factors(config)
    if parameters["rope_type"] == "longrope":
        tensors["rope_factors_long.weight"] = np.array(parameters["long_factor"], dtype=np.float32)
        tensors["rope_factors_short.weight"] = np.array(parameters["short_factor"], dtype=np.float32)
    return tensors


def full_rope(config):
    """The rotary parameters of layers without a window."""
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def add_hyperparameters(writer, case):
    config, arch = make_config(case), case.arch
    writer.add("general.architecture", arch)
    writer.add("general.name", case.name)
    writer.add("general.file_type", 0, ValueType.UINT32)  # all F32
    integers = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": getattr(config, "intermediate_size_mlp", config.intermediate_size),
        "attention.head_count": config.num_attention_heads,
    }
    if case.family in DELTA_FAMILIES:
        integers["ssm.inner_size"] = config.linear_value_head_dim * config.linear_num_value_heads
        recurrent = [kind == "linear_attention" for kind in config.layer_types]
        writer.add(f"{arch}.attention.recurrent_layers", recurrent)
        if arch != "qwen3next":  # pairs of a head by time, height and width, which are the same position for text
            writer.add(f"{arch}.rope.dimension_sections", [11, 11, 10, 0], ValueType.INT32)
    if case.family == "Gemma4":
        add_sizes_of_layers(writer, arch, integers, config)
    else:
        if case.family.startswith("Lfm2"):
            kv_heads = [0 if kind == "conv" else config.num_key_value_heads for kind in config.layer_types]
            writer.add(f"{arch}.attention.head_count_kv", kv_heads, ValueType.INT32)
        else:
            integers["attention.head_count_kv"] = config.num_key_value_heads
        integers["attention.key_length"] = config.head_dim
        integers["rope.dimension_count"] = int(config.head_dim * full_rope(config).get("partial_rotary_factor", 1.0))
    integers["vocab_size"] = config.vocab_size
    integers.setdefault("attention.value_length", integers["attention.key_length"])
    if case.arch == "deepseek2":
        add_latent_sizes(integers, config, is_new=case.family == "DeepseekV3")
    if "num_experts_per_tok" in case.config:
        integers["expert_count"] = getattr(config, "num_local_experts", None) or config.num_experts
        integers["expert_used_count"] = config.num_experts_per_tok
    if "moe_intermediate_size" in case.config:
        integers["expert_feed_forward_length"] = config.moe_intermediate_size
    for key, value in integers.items():
        writer.add(f"{arch}.{key}", value, ValueType.UINT32)
    for key, attribute in case.keys.items():
        value = getattr(config, attribute) if isinstance(attribute, str) else attribute
        writer.add(f"{arch}.{key}", value, *([ValueType.UINT32] if type(value) is int else []))
    if case.family in ("Cohere", "Cohere2", "StableLm"):
        writer.add(f"{arch}.attention.layer_norm_epsilon", config.layer_norm_eps)
    elif case.family == "Starcoder2":
        writer.add(f"{arch}.attention.layer_norm_epsilon", config.norm_epsilon)
    else:
        writer.add(f"{arch}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add(f"{arch}.rope.freq_base", full_rope(config)["rope_theta"])
    add_rope_scaling(writer, arch, full_rope(config), config)


def add_sizes_of_layers(writer, arch, integers, config):
    """Full layers and those with a window have heads of their own; the former's rotation is in rope_freqs.weight."""
    sizes = head_sizes(config)
    for kind, suffix in (("full_attention", ""), ("sliding_attention", "_swa")):
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            integers[key + suffix] = sizes[kind]
    kv_heads = [config.per_layer_config[layer].num_key_value_heads for layer in range(config.num_hidden_layers)]
    writer.add(f"{arch}.attention.head_count_kv", kv_heads, ValueType.INT32)
    writer.add(f"{arch}.attention.sliding_window_pattern", [kind == "sliding_attention" for kind in config.layer_types])
    writer.add(f"{arch}.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])


def add_latent_sizes(integers, config, is_new):
    """Older files say the sizes of a head alone, newer ones those that attention sees beside them."""
    sizes = {"key_length": config.qk_nope_head_dim + config.qk_rope_head_dim, "value_length": config.v_head_dim}
    if config.q_lora_rank is not None:
        integers["attention.q_lora_rank"] = config.q_lora_rank
    integers["attention.kv_lora_rank"] = config.kv_lora_rank
    if is_new:
        integers["attention.head_count_kv"] = 1
        for name, size in sizes.items():
            integers[f"attention.{name}_mla"] = size
        sizes = {"key_length": config.kv_lora_rank + config.qk_rope_head_dim, "value_length": config.kv_lora_rank}
    for name, size in sizes.items():
        integers[f"attention.{name}"] = size


def add_xielu(writer, weights, model):
    """Apertus: keys without an architecture, one number a layer; alpha before its softplus."""
    for alpha in ("alpha_p", "alpha_n"):
        values = [float(weights[name].item()) for name in sorted(weights) if name.endswith(alpha)]
        writer.add(f"xielu.{alpha}", values)
    writer.add("xielu.beta", [activation._beta_scalar for activation in xielu_modules(model)])
    writer.add("xielu.eps", [activation._eps_scalar for activation in xielu_modules(model)])


def add_rope_scaling(writer, arch, parameters, config):
    """YaRN and linear scaling are metadata; llama3 is the tensor rope_freqs.weight and nothing else; LongRoPE is two tensors, the
    original context and a magnitude, without a type.

    No yarn_attn_factor: an absent one means 1 + 0.1 ln(factor), for transformers and llama.cpp alike. llama.cpp's converter
    writes the betas as here, but its loader takes them from the command line for arch llama; transformers uses the model's.
    """
    kind = parameters["rope_type"]
    prefix = f"{arch}.rope.scaling."
    if kind == "longrope":
        original = parameters["original_max_position_embeddings"]
        stretch = config.max_position_embeddings / original
        writer.add(prefix + "original_context_length", original, ValueType.UINT32)
        writer.add(prefix + "attn_factor", math.sqrt(1 + math.log(stretch) / math.log(original)))
    if kind not in ("linear", "yarn"):
        return
    writer.add(prefix + "type", kind)
    writer.add(prefix + "factor", parameters["factor"])
    if kind == "yarn":
        writer.add(prefix + "original_context_length", parameters["original_max_position_embeddings"], ValueType.UINT32)
        for beta in ("beta_fast", "beta_slow"):
            if beta in parameters:
                writer.add(f"{prefix}yarn_{beta}", parameters[beta])
        if "mscale_all_dim" in parameters:
            writer.add(prefix + "yarn_log_multiplier", 0.1 * parameters["mscale_all_dim"])


def add_tokenizer(writer):
    """A SentencePiece-type vocabulary: <unk> <s> </s>, the 256 bytes, the space mark, a to z, two words."""
    normal = ["\u2581"] + [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["\u2581a", "\u2581i"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + normal
    types = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)  # unknown, control, byte, normal
    scores = [0.0] * 259 + [-float(i) for i in range(VOCAB - 259)]
    writer.add("tokenizer.ggml.model", "llama")
    writer.add("tokenizer.ggml.pre", "default")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.scores", scores)
    writer.add("tokenizer.ggml.token_type", types, ValueType.INT32)
    writer.add("tokenizer.ggml.bos_token_id", 1, ValueType.UINT32)
    writer.add("tokenizer.ggml.eos_token_id", 2, ValueType.UINT32)
    writer.add("tokenizer.ggml.unknown_token_id", 0, ValueType.UINT32)
    writer.add("tokenizer.ggml.add_bos_token", True)
    writer.add("tokenizer.ggml.add_eos_token", False)
    writer.add("tokenizer.ggml.add_space_prefix", True)


def run(model, tokens):
    """Logits [num_tokens, VOCAB] of one pass over `tokens`, float64."""
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].double().numpy()


def greedy(model, tokens):
    """The next GREEDY_TOKENS tokens, and the smallest margin by which one of them won."""
    tokens, margin = list(tokens), float("inf")
    for _ in range(GREEDY_TOKENS):
        logits = run(model, tokens)[-1]
        second, best = np.sort(logits)[-2:]
        margin = min(margin, best - second)
        tokens.append(int(np.argmax(logits)))
    return tokens[-GREEDY_TOKENS:], margin


def router_margin(model, tokens, top_k):
    """Smallest relative gap between the top_k-th routing score (with the bias of the choice) and the next, over layers and tokens."""
    gaps = []

    def record(module, inputs, _):
        logits = inputs[0].reshape(-1, module.weight.shape[1]) @ module.weight.T
        if getattr(module, "bias", None) is not None:
            logits = logits + module.bias
        if len(inputs) > 1:
            scores = torch.sigmoid(logits) + inputs[1]
        elif hasattr(module, "e_score_correction_bias"):
            scores = torch.sigmoid(logits) + module.e_score_correction_bias
        else:
            scores = torch.softmax(logits, dim=-1)
        if getattr(module, "num_group", None) and module.num_group > 1 and getattr(module, "topk_method", "groups") != "greedy":
            scores = best_groups(module, scores)
        best = scores.sort(dim=-1, descending=True).values
        gaps.append(float((1 - best[:, top_k] / best[:, top_k - 1]).min()))

    def best_groups(module, scores):
        """The scores of experts in groups that count, 0 for others; the gap between groups counts too."""
        grouped = scores.view(scores.shape[0], module.num_group, -1)
        best_of_group = 2 if hasattr(module, "e_score_correction_bias") else 1
        worth = grouped.topk(best_of_group, dim=-1).values.sum(dim=-1)
        best, order = worth.sort(dim=-1, descending=True)
        gaps.append(float((1 - best[:, module.topk_group] / best[:, module.topk_group - 1]).min()))
        counts = torch.zeros_like(worth).scatter_(1, order[:, :module.topk_group], 1)
        return (grouped * counts.unsqueeze(-1)).flatten(1)

    is_router = lambda module: type(module).__name__.lower().endswith(("topkrouter", "llama4router"))
    routers = [module for module in model.modules() if is_router(module)]
    hooks = [router.register_forward_hook(record) for router in routers]
    run(model, tokens)
    for hook in hooks:
        hook.remove()
    return min(gaps)


def nmse(value, reference):
    return float(np.sum((value - reference) ** 2) / np.sum(reference**2))


def rounded(value):
    """Two digits: evidence for a reader, not noise in a diff."""
    return float(f"{value:.1e}")


def evidence(case, weights, model, tokens, logits):
    """The entry of golden.json."""
    continuation, margin = greedy(model, tokens)
    entry = {
        "name": case.name, "covers": case.covers, "num_tokens": len(tokens), "greedy": continuation,
        "greedy_margin": rounded(margin),
        "float32_nmse": rounded(nmse(run(make_model(case, weights, torch.float32), tokens), logits)),
        "controls": {name: rounded(nmse(run(make_model(case, weights, torch.float64, changes), tokens), logits))
                     for name, changes in case.controls.items()},
    }
    for name, (end, value) in case.filled.items():
        changed = {key: np.full_like(weight, value) if key.endswith(end) else weight for key, weight in weights.items()}
        entry["controls"][name] = rounded(nmse(run(make_model(case, changed, torch.float64), tokens), logits))
    if "num_experts_per_tok" in case.config:
        entry["router_margin"] = rounded(router_margin(model, tokens + continuation, case.config["num_experts_per_tok"]))
    return entry


def objection(entry):
    """Why such a model could not tell a right engine from a wrong one, or None."""
    if entry["greedy_margin"] < 5e-3 or entry.get("router_margin", 1) < 5e-3:
        return "a token or an expert wins too narrowly: rounding could choose another"
    if BASE_CONFIG["eos_token_id"] in entry["greedy"] or len(set(entry["greedy"])) < GREEDY_TOKENS // 2:
        return "the greedy continuation ends or repeats itself"
    if entry["float32_nmse"] > NMSE_TOLERANCE / 100:
        return "rounding alone comes near the tolerance"
    if min(entry["controls"].values()) < 1e5 * NMSE_TOLERANCE:
        return "a control comes near the tolerance"
    return None


def write_case(case, seed, folder):
    """Writes NAME.gguf and NAME.logits from the first draw without objection; returns the entry of golden.json."""
    for draw in range(MAX_DRAWS):
        # The name is part of the generator's seed, so that one model can change without the others.
        rng = np.random.default_rng([seed, draw, *case.name.encode()])
        weights = draw_weights(case, rng)
        tokens = [1, *rng.integers(3, VOCAB, case.num_tokens - 1).tolist()]
        model = make_model(case, weights, torch.float64)
        logits = run(model, tokens)
        entry = evidence(case, weights, model, tokens, logits)
        if objection(entry) is None:
            break
    else:
        sys.exit(f"{case.name}: none of {MAX_DRAWS} draws is usable; the last: {objection(entry)} ({entry})")

    writer = GgufWriter()
    add_hyperparameters(writer, case)
    if xielu_modules(model):
        add_xielu(writer, weights, model)
    add_tokenizer(writer)
    for name, tensor in gguf_tensors(case, weights).items():
        writer.add_tensor(name, tensor, TensorType.F32)
    writer.write(folder / f"{case.name}.gguf")
    header = np.array([len(tokens), VOCAB, *tokens], dtype="<i4")
    (folder / f"{case.name}.logits").write_bytes(header.tobytes() + logits.astype("<f4").tobytes())
    return entry


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=root / "tests" / "golden", help="folder (default: tests/golden)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and tokens (default: 1)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these models; golden.json then lists them beside what it has")
    arguments = parser.parse_args()

    torch.set_num_threads(1)  # sums in one order
    arguments.out.mkdir(parents=True, exist_ok=True)
    models = []
    golden_file = arguments.out / "golden.json"
    known = {entry["name"]: entry for entry in json.loads(golden_file.read_text())["models"]} if arguments.only else {}
    for case in CASES:
        if arguments.only and case.name not in arguments.only:
            if case.name in known:
                models.append(known[case.name])
            continue
        models.append(write_case(case, arguments.seed, arguments.out))
        print(f"{case.name}: float32 {models[-1]['float32_nmse']}, controls {models[-1]['controls']}")
    golden = {
        "made_by": f"scripts/golden/make_golden_models.py --seed {arguments.seed}",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__},
        "nmse_tolerance": NMSE_TOLERANCE,
        "models": models,
    }
    golden_file.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
