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
  choice_margin    the same for the keys that an indexer chooses, relative to the deviation of a query's scores. Gaps are narrow, since
                   each query of each layer has one: a float32 engine chooses the same keys because scores err by about 1e-6
  greedy_margin    smallest gap between the best and the second-best logit of the greedy continuation
"""

import argparse
import functools
import json
import math
import pathlib
import sys
from typing import NamedTuple

try:
    import numpy as np
    import torch
    import transformers
except ImportError as error:
    sys.exit(f"make_golden_models.py needs more packages: pip install numpy torch transformers ({error})")

from gguf_writer import GgufWriter, TensorType

VOCAB = 288
GREEDY_TOKENS = 16
MAX_DRAWS = 400
NMSE_TOLERANCE = 1e-8


def rope(kind, theta=10000.0, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": theta, **parameters}}


BASE_CONFIG = {
    "vocab_size": VOCAB, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 32, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager",
    "experts_implementation": "eager",  # the grouped matrix product does not support float64
    **rope("default"),
}
# Head size 32, so that each boundary of a scaling method has some of the 16 frequencies on both sides.
SCALED = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}


class Case(NamedTuple):
    """A model: a transformers class, its configuration on top of BASE_CONFIG, and what must not leave the logits alone."""

    name: str
    covers: str
    family: str  # transformers' class prefix: Llama, Mistral, ...
    arch: str  # GGUF's general.architecture
    config: dict
    controls: dict  # name -> configuration changes
    filled: dict = {}  # more controls: name -> (end of weight names, the value of all these weights)
    num_tokens: int = 32
    config_class: str = ""  # if it is not the family's name + Config
    keys: dict = {}  # GGUF key without the architecture -> attribute of the configuration, or value
    draft: dict | None = None  # with a layer for drafts: changes that make it the only layer
    altered: dict = {}  # more controls: name -> a function that changes the model


YARN_32 = {"factor": 4.0, "original_max_position_embeddings": 32}
YARN_BETAS = {**YARN_32, "beta_fast": 2.0, "beta_slow": 0.5}
YARN_GPT_OSS = rope("yarn", 500.0, **YARN_BETAS, truncate=False)  # a correction range of which neither end is a whole number
LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}

# Two kinds of layers, as in most families with windows: a window of 8, far shorter than the text.
SMALL = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 48}
SMALL_HEADS = {**SMALL, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
WINDOWED = {**SMALL, "sliding_window": 8}
WINDOW_KEY = {"attention.sliding_window": "sliding_window"}
LOGIT_CAP = {"final_logit_softcapping": "final_logit_softcapping"}

# Controls of several cases.
NO_WINDOWS = {"no windows": {"sliding_window": 1024}}
NO_LOGIT_CAP = {"no cap of logits": {"final_logit_softcapping": None}}
OTHER_BASE = {"another RoPE base": rope("default")}  # than 1e6
SMALL_BASE = {"another RoPE base": rope("default", 100.0)}
WHOLE_ROTATION = {"rotation of whole heads": rope("default", partial_rotary_factor=1.0)}
ONE_EXPERT = {"one expert": {"num_experts_per_tok": 1}}
NORMALISED = {"routing weights normalised": {"norm_topk_prob": True}}
NOT_NORMALISED = {"routing weights not normalised": {"norm_topk_prob": False}}

GLM4_EXPERTS = {**SMALL, "num_hidden_layers": 3, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
                "n_shared_experts": 2, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 1.5,
                "attention_bias": True, "n_group": 1, "topk_group": 1, **rope("default", partial_rotary_factor=0.5)}
GLM4_CONTROLS = {**NOT_NORMALISED, "not scaled": {"routed_scaling_factor": 1.0}, **ONE_EXPERT}
GLM4_KEYS = {"expert_shared_count": "n_shared_experts", "leading_dense_block_count": "first_k_dense_replace",
             "expert_weights_scale": "routed_scaling_factor", "expert_weights_norm": "norm_topk_prob", "expert_gating_func": 2,
             "expert_group_count": "n_group", "expert_group_used_count": "topk_group"}
MINISTRAL = {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}
GRANITE_SCALES = {"embedding_multiplier": 12.0, "residual_multiplier": 0.25, "attention_multiplier": 0.1, "logits_scaling": 4.0,
                  "tie_word_embeddings": False}
GRANITE_EXPERTS = {**SMALL, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32, **GRANITE_SCALES}
GRANITE_KEYS = {"embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier",
                "attention.scale": "attention_multiplier", "logit_scale": "logits_scaling"}
GRANITE_CONTROLS = {"no scale of residuals": {"residual_multiplier": 1.0}, **ONE_EXPERT}


def rope_of_kinds(windowed, full):
    """Of layers with a window, and of those without."""
    return {"rope_parameters": {"sliding_attention": windowed["rope_parameters"], "full_attention": full["rope_parameters"]}}


def gemma3_rope(factor=4.0, local_theta=10000.0):
    return rope_of_kinds(rope("default", local_theta), rope("linear", 1e6, factor=factor))


def gemma4_rope(rotated=0.25, local_theta=10000.0):
    return rope_of_kinds(rope("default", local_theta), rope("proportional", 500.0, partial_rotary_factor=rotated))


# The plain decoder of 31B.
GEMMA4 = {**WINDOWED, "num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_global_key_value_heads": 1, "head_dim": 16, "global_head_dim": 48, "attention_k_eq_v": True,
          "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": VOCAB, "num_kv_shared_layers": 0,
          "final_logit_softcapping": 3.0, **gemma4_rope()}


# Streams, ranks and rows of sizes that all differ.
GEMMA3N = {**WINDOWED, "hidden_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 56, "laurel_rank": 12,
           "hidden_size_per_layer_input": 10, "vocab_size_per_layer_input": VOCAB, "final_logit_softcapping": 3.0,
           **rope_of_kinds(rope("default"), rope("default", 1e6))}
GEMMA3N_KEYS = {**WINDOW_KEY, **LOGIT_CAP, "altup.active_idx": "altup_active_idx", "altup.num_inputs": "altup_num_inputs",
                "attention.shared_kv_layers": "num_kv_shared_layers", "embedding_length_per_layer_input": "hidden_size_per_layer_input"}
GEMMA3N_PARTS = {"no prediction": ("prediction_coefs.weight", 0), "even correction": ("correction_coefs.weight", 0),
                 "no scale of the first stream": ("correct_output_scale", 1), "no product beside attention": ("linear_right.weight", 0),
                 "no inputs of layers": ("embed_tokens_per_layer.weight", 0)}


def long_rope(long=(1.5, 2.0, 3.0, 4.0, 5.0, 6.0)):
    return rope("longrope", partial_rotary_factor=0.75, original_max_position_embeddings=32,
                short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5], long_factor=list(long))


# Latent attention with sizes that all differ; the config's head_dim is the size of the rotated elements.
LATENT = {"hidden_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4, "qk_nope_head_dim": 12, "qk_rope_head_dim": 16,
          "head_dim": 16, "v_head_dim": 20, "kv_lora_rank": 24, "rms_norm_eps": 1e-6, "intermediate_size": 48,
          "first_k_dense_replace": 1, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2,
          "n_shared_experts": 2, "moe_intermediate_size": 16, "routed_scaling_factor": 2.5}
LATENT_KEYS = {"leading_dense_block_count": "first_k_dense_replace", "expert_shared_count": "n_shared_experts",
               "expert_group_count": "n_group", "expert_group_used_count": "topk_group", "expert_weights_scale": "routed_scaling_factor"}
INDEXER_KEYS = {"attention.indexer.head_count": "index_n_heads", "attention.indexer.key_length": "index_head_dim",
                "attention.indexer.top_k": "index_topk", "expert_weights_norm": "norm_topk_prob", "expert_gating_func": 2}
DEEPSEEK32 = {**LATENT, "q_lora_rank": 20, "norm_topk_prob": True, "index_n_heads": 5, "index_head_dim": 20, "index_topk": 19}
GLM_DSA = {**LATENT, "num_hidden_layers": 5, "first_k_dense_replace": 4, "q_lora_rank": 28, "norm_topk_prob": True, "n_group": 1, "topk_group": 1,
           "qk_nope_head_dim": 20, "index_n_heads": 10, "index_head_dim": 28, "index_topk": 17,
           "indexer_types": ["full", "full", "shared", "full", "shared"]}
ALL_KEYS = {"all keys": {"index_topk": 1024}}
INDEXER_PARTS = {"no bias of the indexer's keys": ("k_norm.bias", 0), "one weight for the indexer's heads": ("weights_proj.weight", 0.1)}
# Three of four layers have a state; value heads come in pairs.
DELTA_NETS = {**SMALL, "num_hidden_layers": 5, "head_dim": 16, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 12,
              "linear_value_head_dim": 12, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "full_attention_interval": 4,
              "rms_norm_eps": 1e-6, **rope("default", partial_rotary_factor=0.25)}
DELTA_EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 24}
DELTA_KEYS = {"ssm.conv_kernel": "linear_conv_kernel_dim", "ssm.state_size": "linear_key_head_dim", "ssm.group_count": "linear_num_key_heads",
              "ssm.time_step_rank": "linear_num_value_heads", "full_attention_interval": 4}
NO_MEMORY = {"no memory": ("A_log", 9.0), "every update in full": ("in_proj_b.weight", 0), "no alpha": ("in_proj_a.weight", 0)}
SHARED_EXPERT_KEY = {"expert_shared_feed_forward_length": "shared_expert_intermediate_size"}
# Mamba-2 with heads, groups, states and columns that all differ.
MAMBA_LAYERS = ["linear_attention", "full_attention", "linear_attention"]
GRANITE_HYBRID = {**SMALL, **GRANITE_SCALES, "hidden_size": 40, "head_dim": 20, "num_hidden_layers": 3, "layer_types": MAMBA_LAYERS, "num_local_experts": 0,
                  "shared_intermediate_size": 48, "mamba_n_heads": 8, "mamba_d_head": 10, "mamba_d_state": 20, "mamba_d_conv": 4}
NEMOTRON_H = {**SMALL, "hidden_size": 36, "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
              "mamba_num_heads": 6, "mamba_head_dim": 12, "n_groups": 2, "ssm_state_size": 20, "time_step_min": 1e-30, "num_hidden_layers": 5}
MAMBA_CONTROLS = {"no memory": ("A_log", 9.0), "an even convolution": ("conv1d.weight", 0.5), "no bias of convolutions": ("conv1d.bias", 0),
                  "no dt_bias": ("dt_bias", 0), "no skip": (".D", 0), "one norm behind the scan": (("mamba.norm.weight", "mixer.norm.weight"), 1)}
# Kimi delta attention in most layers, latent attention without positions in the others.
KIMI_LINEAR = {**LATENT, "hidden_size": 40, "num_hidden_layers": 5, "layer_types": ["linear_attention"] * 3 + ["full_attention", "linear_attention"],
               "linear_num_heads": 4, "linear_head_dim": 12, "linear_conv_kernel_dim": 4, "tie_word_embeddings": False, "moe_renormalize": True,
               "num_local_experts": 6, "num_experts_per_tok": 2, "first_k_dense_replace": 3}
KIMI_LINEAR_KEYS = {"leading_dense_block_count": "first_k_dense_replace", "expert_shared_count": "n_shared_experts", "expert_gating_func": 2,
                    "expert_weights_scale": "routed_scaling_factor", "kda.head_dim": "linear_head_dim", "ssm.conv_kernel": "linear_conv_kernel_dim",
                    "expert_group_used_count": "topk_group"}
LFM2 = {**SMALL, "layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3, "norm_eps": 1e-5}


def rotate_other_pairs(model):
    """Rows of the indexer such that its rotation turns the pairs (2i, 2i + 1) instead of (i, i + d/2), or the latter instead of the former."""
    indexers = [layer.self_attn.indexer for layer in model.model.layers if layer.self_attn.indexer is not None]
    for indexer in indexers:
        rotated, size = indexer.qk_rope_head_dim, indexer.head_dim
        pairs = torch.arange(rotated).reshape(-1, 2).T if model.config.model_type == "deepseek_v32" else torch.arange(rotated).reshape(2, -1).T
        order = torch.cat([pairs.flatten(), torch.arange(rotated, size)])
        with torch.no_grad():
            for part in (indexer.wk.weight, indexer.k_norm.weight, indexer.k_norm.bias):
                part.copy_(part[order])
            indexer.wq_b.weight.copy_(indexer.wq_b.weight.unflatten(0, (-1, size))[:, order].flatten(0, 1))


COHERE_LAYERS = ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]


def norm_first(model):
    """Hunyuan's norms of Q and K in front of the rotation, where other families have them."""
    for layer in model.model.layers:
        for product, norm in (("q_proj", "query_layernorm"), ("k_proj", "key_layernorm")):
            part, heads = layer.self_attn, torch.nn.Unflatten(-1, (-1, layer.self_attn.head_dim))
            setattr(part, product, torch.nn.Sequential(getattr(part, product), heads, getattr(part, norm), torch.nn.Flatten(-2)))
            setattr(part, norm, torch.nn.Identity())


def one_decay_a_head(model):
    """Decays of Kimi delta attention by the mean of a head's rows, as other delta nets have them."""
    for layer in model.model.layers:
        if hasattr(layer.self_attn, "forget_gate"):
            gate = layer.self_attn.forget_gate
            for parameter in (gate.f_b_proj.weight, gate.dt_bias):
                heads = parameter.data.reshape(gate.num_heads, gate.head_dim, -1)
                parameter.data = heads.mean(1, keepdim=True).expand(heads.shape).reshape(parameter.shape)


CASES = [
    Case("mixtral", "experts in arch llama, top 2 of 4, weights normalised over the chosen", "Mixtral", "llama",
         {"num_local_experts": 4, "num_experts_per_tok": 2, **rope("default", 1e6)}, {**ONE_EXPERT, "every expert": {"num_experts_per_tok": 4}}),
    Case("qwen3moe", "experts, QK norm, head size 16 of hidden 64 / 2 heads", "Qwen3Moe", "qwen3moe",
         {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "intermediate_size": 96, "num_attention_heads": 2,
          "num_key_value_heads": 1, "norm_topk_prob": True, "rms_norm_eps": 1e-6, **rope("default", 1e6)}, {**NOT_NORMALISED, **ONE_EXPERT}),
    Case("olmoe", "experts, weights not normalised, QK norm over all heads", "Olmoe", "olmoe",
         {**SMALL, "num_experts": 8, "num_experts_per_tok": 3, "intermediate_size": 32, "norm_topk_prob": False}, {**NORMALISED, **ONE_EXPERT}),
    Case("qwen2moe", "experts, weights not normalised, shared experts with a gate", "Qwen2Moe", "qwen2moe",
         {**SMALL, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": False,
          "shared_expert_intermediate_size": 64, "rms_norm_eps": 1e-6, "use_sliding_window": False, **rope("default", 1e6)},
         {**NORMALISED, **ONE_EXPERT}, keys=SHARED_EXPERT_KEY),
    Case("gpt-oss", "sinks, windows in every other layer, clamped SwiGLU, biases of all products and experts, YaRN without rounding",
         "GptOss", "gpt-oss", {**WINDOWED, "num_hidden_layers": 3, "head_dim": 32, "intermediate_size": 32, "num_local_experts": 4,
                               "num_experts_per_tok": 2, "tie_word_embeddings": False, "attention_bias": True, **YARN_GPT_OSS},
         {**NO_WINDOWS, "YaRN with rounding": rope("yarn", 500.0, **YARN_BETAS, truncate=True), **ONE_EXPERT, "no clamp": {"swiglu_limit": 1e6},
          "another slope": {"swiglu_alpha": 1.0}},
         filled={"no sinks": ("sinks", -1e9), "no biases of routers": ("router.bias", 0), "no biases of gate and up": ("up_proj_bias", 0),
                 "no biases of down": ("down_proj_bias", 0), "no biases of attention's output": ("o_proj.bias", 0)},
         num_tokens=72, keys={**WINDOW_KEY, "expert_feed_forward_length": "intermediate_size"}),
    Case("glm4moe", "sigmoid routing with a bias of the choice, shared experts, a dense layer first, rotation of half a head",
         "Glm4Moe", "glm4moe", GLM4_EXPERTS, GLM4_CONTROLS, filled={"no bias of the choice": ("e_score_correction_bias", 0)}, keys=GLM4_KEYS),
    Case("glm4moe-qk-norm", "the same with QK norm and two dense layers", "Glm4Moe", "glm4moe",
         {**GLM4_EXPERTS, "first_k_dense_replace": 2, "use_qk_norm": True}, GLM4_CONTROLS, keys=GLM4_KEYS),
    Case("granitemoe", "experts with scales of embeddings, residuals, attention and logits", "GraniteMoe", "granitemoe",
         GRANITE_EXPERTS, GRANITE_CONTROLS, keys=GRANITE_KEYS),
    Case("granitemoe-shared", "the same with shared experts", "GraniteMoeShared", "granitemoe",
         {**GRANITE_EXPERTS, "shared_intermediate_size": 64}, GRANITE_CONTROLS,
         keys={**GRANITE_KEYS, "expert_shared_feed_forward_length": "shared_intermediate_size"}),
    Case("llama-yarn", "YaRN with the default betas, three times past the original context", "Llama", "llama",
         {**SCALED, "max_position_embeddings": 128, **rope("yarn", **YARN_32)},
         {"no scaling": rope("default"), "linear": rope("linear", factor=4.0),
          "attention factor 1": rope("yarn", **YARN_32, attention_factor=1.0)}, num_tokens=96),
    Case("llama-yarn-betas", "YaRN with betas of its own: a ramp that starts above frequency 0", "Llama", "llama",
         {**SCALED, "max_position_embeddings": 128, **rope("yarn", 500.0, **YARN_BETAS)},
         {"default betas": rope("yarn", 500.0, **YARN_32), "no scaling": rope("default", 500.0)}, num_tokens=96),
    Case("llama-llama3", "llama3 scaling, as the tensor rope_freqs.weight", "Llama", "llama", {**SCALED, **rope("llama3", 500.0, **LLAMA3)},
         {"no scaling": rope("default", 500.0), "linear": rope("linear", 500.0, factor=8.0)}, num_tokens=64),
    Case("llama-linear", "linear scaling", "Llama", "llama", {**SCALED, **rope("linear", factor=4.0)},
         {"no scaling": rope("default")}, num_tokens=48),
    Case("mistral", "Mistral as arch llama, own output matrix", "Mistral", "llama",
         {"tie_word_embeddings": False, "sliding_window": None, **rope("default", 1e6)}, OTHER_BASE),
    Case("mistral-head-dim", "head size 16 of hidden 64 / 2 heads", "Mistral", "llama",
         {"num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 96, "sliding_window": None, **rope("default", 1e6)}, OTHER_BASE),
    Case("qwen2-tied", "biases on Q, K and V, no output.weight", "Qwen2", "qwen2",
         {"rms_norm_eps": 1e-6, "use_sliding_window": False, **rope("default", 1e6)}, OTHER_BASE),
    Case("mistral-window", "a window in every layer", "Mistral", "llama", WINDOWED, NO_WINDOWS, num_tokens=48, keys=WINDOW_KEY),
    Case("gemma", "scaled embeddings, GeGLU, norms of 1 + w", "Gemma", "gemma", {**SMALL, "hidden_activation": "gelu_pytorch_tanh"},
         {"SwiGLU": {"hidden_act": "silu", "hidden_activation": "silu"}}),
    Case("gemma2", "windows in every other layer, caps of attention and logits, norms on both sides", "Gemma2", "gemma2",
         {**WINDOWED, "num_hidden_layers": 3, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
         {**NO_WINDOWS, "no cap of attention": {"attn_logit_softcapping": None}, **NO_LOGIT_CAP,
          "windows in the other layers": {"layer_types": ["full_attention", "sliding_attention", "full_attention"]}},
         num_tokens=48, keys={**WINDOW_KEY, "attn_logit_softcapping": "attn_logit_softcapping", **LOGIT_CAP}),
    Case("gemma3", "windows in five layers of six, each kind with its rotary table, QK norm", "Gemma3", "gemma3",
         {**WINDOWED, "num_hidden_layers": 7, "query_pre_attn_scalar": 16, **gemma3_rope()},
         {**NO_WINDOWS, "another base of windows": gemma3_rope(local_theta=100.0), "no scaling": gemma3_rope(1.0)},
         num_tokens=48, config_class="Gemma3TextConfig", keys=WINDOW_KEY),
    Case("gemma3-full", "no windows, caps of logits", "Gemma3", "gemma3",
         {**SMALL, "query_pre_attn_scalar": 16, "final_logit_softcapping": 3.0, "layer_types": ["full_attention"] * 2, **gemma3_rope()},
         {"no scaling": gemma3_rope(1.0), **NO_LOGIT_CAP}, config_class="Gemma3TextConfig", keys=LOGIT_CAP),
    Case("gemma3n", "four residual streams that a router mixes, a product of low rank beside attention, gates above a cut alone in the first layers,"
         " inputs of layers by the token; the last layers read the keys and values of earlier ones", "Gemma3n", "gemma3n",
         {**GEMMA3N, "num_hidden_layers": 7, "layer_types": ["sliding_attention"] * 2 + ["full_attention", "sliding_attention"] * 2 + ["full_attention"],
          "num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.9, 0.6] + [0.0] * 5},
         {**NO_WINDOWS, "all gates": {"activation_sparsity_pattern": [0.0] * 7}, "a lower cut": {"activation_sparsity_pattern": [0.8, 0.6] + [0.0] * 5},
          "another base of windows": rope_of_kinds(rope("default", 100.0), rope("default", 1e6)),
          "no cap of logits": {"final_logit_softcapping": 1e6}},
         filled=GEMMA3N_PARTS, num_tokens=48, config_class="Gemma3nTextConfig", keys=GEMMA3N_KEYS),
    Case("gemma3n-dense", "the same with three streams and all gates, each layer with keys and values of its own", "Gemma3n", "gemma3n",
         {**GEMMA3N, "hidden_size": 36, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 24, "intermediate_size": 44, "laurel_rank": 7,
          "hidden_size_per_layer_input": 6, "altup_num_inputs": 3, "num_hidden_layers": 3, "num_kv_shared_layers": 0,
          "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "activation_sparsity_pattern": [0.0] * 3},
         NO_WINDOWS, filled=GEMMA3N_PARTS, num_tokens=32, config_class="Gemma3nTextConfig", keys=GEMMA3N_KEYS),
    Case("gemma4", "heads of two sizes with KV heads of each, values that are keys in full layers, norms of values without weights,"
         " scores that are not scaled, rotation of a quarter of the pairs in full layers, a scale behind each layer", "Gemma4", "gemma4",
         GEMMA4, {**NO_WINDOWS, "whole rotation": gemma4_rope(1.0), "another base of windows": gemma4_rope(local_theta=100.0), **NO_LOGIT_CAP},
         filled={"no scale behind layers": ("layer_scalar", 1)}, num_tokens=48, config_class="Gemma4TextConfig",
         keys={**WINDOW_KEY, **LOGIT_CAP, "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0}),
    Case("gemma4-e", "inputs of layers by the token; the last layers read the keys and values of earlier ones and are twice as wide", "Gemma4", "gemma4",
         {**GEMMA4, "num_hidden_layers": 6, "layer_types": ["sliding_attention", "full_attention"] * 3, "attention_k_eq_v": False,
          "hidden_size_per_layer_input": 12, "num_kv_shared_layers": 2, "use_double_wide_mlp": True},
         NO_WINDOWS, filled={"no inputs of layers": ("embed_tokens_per_layer.weight", 0), "none of the embedding": ("per_layer_model_projection.weight", 0),
                             "no norm of them": ("per_layer_projection_norm.weight", 1)},
         num_tokens=48, config_class="Gemma4TextConfig",
         keys={**WINDOW_KEY, **LOGIT_CAP, "attention.shared_kv_layers": "num_kv_shared_layers",
               "embedding_length_per_layer_input": "hidden_size_per_layer_input", "feed_forward_length": [48] * 4 + [96] * 2}),
    Case("gemma4-experts", "experts beside a dense block, with norms of both and a scale for each expert", "Gemma4", "gemma4",
         {**GEMMA4, "enable_moe_block": True, "num_experts": 6, "top_k_experts": 2, "moe_intermediate_size": 16},
         {"one expert": {"top_k_experts": 1}},
         filled={"no scales of experts": ("per_expert_scale", 1), "no dense block": ("mlp.down_proj.weight", 0)},
         num_tokens=48, config_class="Gemma4TextConfig",
         keys={**WINDOW_KEY, **LOGIT_CAP, "attention.shared_kv_layers": 0, "embedding_length_per_layer_input": 0,
               "expert_count": "num_experts", "expert_used_count": "top_k_experts"}),
    Case("phi3", "Phi-3: fused qkv and gate-up, a window in every layer", "Phi3", "phi3", WINDOWED, NO_WINDOWS, num_tokens=48, keys=WINDOW_KEY),
    Case("phi4-mini", "LongRoPE beyond the original context, rotation of three quarters of a head", "Phi3", "phi3",
         {**SMALL, "max_position_embeddings": 128, "original_max_position_embeddings": 32, **long_rope()},
         {"no scaling": rope("default", partial_rotary_factor=0.75), "other factors": long_rope((1, 1, 1, 1, 2, 2))}, num_tokens=96),
    Case("smollm3", "every fourth layer without positions", "SmolLM3", "smollm3", {**SMALL, "num_hidden_layers": 5},
         {"positions everywhere": {"no_rope_layers": [1] * 5}}, num_tokens=48),
    Case("olmo2", "norms behind blocks alone, QK norm over all heads", "Olmo2", "olmo2", {}, SMALL_BASE),
    Case("olmo3", "the same with windows in three layers of four, YaRN in the others alone", "Olmo3", "olmo2",
         {**WINDOWED, "num_hidden_layers": 5, **rope_of_kinds(rope("default"), rope("yarn", **YARN_32))},
         {**NO_WINDOWS, "YaRN everywhere": rope_of_kinds(rope("yarn", **YARN_32), rope("yarn", **YARN_32))}, num_tokens=48, keys=WINDOW_KEY),
    Case("granite", "scales of embeddings, residuals, attention and logits", "Granite", "granite", GRANITE_SCALES,
         {"no scale of embeddings": {"embedding_multiplier": 1.0}, "of residuals": {"residual_multiplier": 1.0},
          "of attention": {"attention_multiplier": 0.25}, "of logits": {"logits_scaling": 1.0}}, keys=GRANITE_KEYS),
    Case("glm4", "interleaved rotation of half a head, norms on both sides, biases, fused gate-up", "Glm4", "glm4",
         {"attention_bias": True, **rope("default", partial_rotary_factor=0.5)}, WHOLE_ROTATION),
    Case("command-r", "blocks in parallel behind one layer norm, scaled logits", "Cohere", "command-r",
         {"logit_scale": 0.25, "layer_norm_eps": 1e-5, "use_qk_norm": False},
         {"logits not scaled": {"logit_scale": 1.0}, **SMALL_BASE}, keys={"logit_scale": "logit_scale"}),
    Case("command-r-plus", "the same with layer norms of Q and K, whose weights each head has of its own", "Cohere", "command-r",
         {**SMALL_HEADS, "logit_scale": 0.25, "layer_norm_eps": 1e-5, "use_qk_norm": True}, {"logits not scaled": {"logit_scale": 1.0}},
         filled={"one weight for all heads": ("_norm.weight", 1.5)}, keys={"logit_scale": "logit_scale"}),
    Case("command-r7b", "the same with windows, and no positions in layers without", "Cohere2", "cohere2",
         {**WINDOWED, "num_hidden_layers": 5, "logit_scale": 0.5, "layer_norm_eps": 1e-5},
         {**NO_WINDOWS, "logits not scaled": {"logit_scale": 1.0}}, num_tokens=48, keys={**WINDOW_KEY, "logit_scale": "logit_scale"}),
    Case("starcoder2", "layer norms, GELU without a gate, biases everywhere, a window", "Starcoder2", "starcoder2",
         {**WINDOWED, "tie_word_embeddings": False, "norm_epsilon": 1e-5, "use_bias": True},
         {**NO_WINDOWS, "ReLU": {"hidden_act": "relu"}}, num_tokens=48, keys=WINDOW_KEY),
    Case("stablelm", "layer norms, rotation of a quarter of a head", "StableLm", "stablelm",
         {"layer_norm_eps": 1e-5, "use_qkv_bias": True, **rope("default", partial_rotary_factor=0.25)}, WHOLE_ROTATION),
    Case("stablelm-parallel", "the same with blocks in parallel", "StableLm", "stablelm",
         {"layer_norm_eps": 1e-5, "use_parallel_residual": True, **rope("default", partial_rotary_factor=0.25)}, WHOLE_ROTATION),
    Case("stablelm-12b", "the same with layer norms of Q and K, whose weights each head has of its own", "StableLm", "stablelm",
         {**SMALL_HEADS, "layer_norm_eps": 1e-5, "use_parallel_residual": True, "qk_layernorm": True, "tie_word_embeddings": False,
          **rope("default", partial_rotary_factor=0.5)}, WHOLE_ROTATION,
         filled={"one weight for all heads": (tuple(f"norms.{head}.weight" for head in range(4)), 1)}),
    Case("internlm2", "Llama's shape under its name", "Llama", "internlm2", {**SMALL, **rope("default", 1e6)}, OTHER_BASE),
    Case("ernie4_5", "interleaved rotation without permuted rows", "Ernie4_5", "ernie4_5",
         {**SMALL, "use_bias": False, **rope("default", 5e5)}, OTHER_BASE),
    Case("ernie4_5-moe", "the same with experts: a softmax with a bias of the choice, shared experts, a dense layer first", "Ernie4_5_Moe", "ernie4_5-moe",
         {**SMALL, "num_hidden_layers": 3, "use_bias": False, "moe_num_experts": 6, "moe_k": 2, "moe_num_shared_experts": 2, "moe_intermediate_size": 16,
          "moe_layer_start_index": 1, "moe_layer_end_index": 2, "moe_layer_interval": 1, **rope("default", 5e5)},
         {"one expert": {"moe_k": 1}}, filled={"no bias of the choice": ("e_score_correction_bias", 0)},
         keys={"expert_count": "moe_num_experts", "expert_used_count": "moe_k", "expert_shared_count": "moe_num_shared_experts",
               "leading_dense_block_count": "moe_layer_start_index", "interleave_moe_layer_step": "moe_layer_interval"}),
    Case("ministral3", "queries that grow with their position, from YaRN's original context on", "Ministral3", "mistral3",
         {**SCALED, "max_position_embeddings": 128, **rope("yarn", 500.0, **YARN_32, **MINISTRAL)},
         {"no temperature": rope("yarn", 500.0, **YARN_32, **{**MINISTRAL, "llama_4_scaling_beta": 0.0}), "no scaling": rope("default", 500.0, **YARN_32, **MINISTRAL)},
         num_tokens=96, keys={"attention.temperature_scale": 0.3}),
    Case("minimax-m2", "QK norm over all heads, sigmoid routing with a bias of the choice, rotation of half a head", "MiniMaxM2", "minimax-m2",
         {**SMALL, "num_local_experts": 6, "num_experts_per_tok": 2, "intermediate_size": 32, "tie_word_embeddings": False,
          **rope("default", partial_rotary_factor=0.5)},
         {"rotation of whole heads": rope("default"), **ONE_EXPERT}, filled={"no bias of the choice": ("e_score_correction_bias", 0)},
         keys={"expert_feed_forward_length": "intermediate_size", "expert_gating_func": 2}),
    Case("exaone4", "norms behind blocks alone, QK norm of heads, windows in three layers of four, no positions in the others", "Exaone4", "exaone4",
         {**WINDOWED, "num_hidden_layers": 5, "sliding_window_pattern": 4, "tie_word_embeddings": True}, NO_WINDOWS, num_tokens=48, keys=WINDOW_KEY),
    Case("exaone4-full", "no windows: positions everywhere", "Exaone4", "exaone4", {**SMALL, "sliding_window": None, "layer_types": ["full_attention"] * 2}, SMALL_BASE),
    Case("exaone-moe", "windows as EXAONE 4's, norms in front, sigmoid routing with a bias of the choice, a shared expert, a dense layer first",
         "ExaoneMoe", "exaone-moe",
         {**WINDOWED, "num_hidden_layers": 4, "sliding_window_pattern": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
          "num_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1},
         {**NO_WINDOWS, **NOT_NORMALISED}, filled={"no bias of the choice": ("e_score_correction_bias", 0)}, num_tokens=24,
         keys={**WINDOW_KEY, **GLM4_KEYS, "expert_shared_count": "num_shared_experts"}),
    Case("dots1", "QK norm of heads, sigmoid routing with a bias of the choice, shared experts, a dense layer first", "Dots1", "dots1",
         {**SMALL, "num_hidden_layers": 3, "n_routed_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_shared_experts": 2,
          "first_k_dense_replace": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1},
         {**NOT_NORMALISED, **ONE_EXPERT}, filled={"no bias of the choice": ("e_score_correction_bias", 0)}, keys=GLM4_KEYS),
    Case("hunyuan-dense", "QK norm of heads behind the rotation, whose base is stretched by alpha", "HunYuanDenseV1", "hunyuan-dense",
         {**SMALL, "head_dim": 24, **rope("dynamic", 100.0, alpha=50.0, factor=1.0)}, {"base not stretched": rope("default", 100.0)},
         altered={"norm in front of the rotation": norm_first}),
    Case("hunyuan-moe", "the same with experts and a shared one", "HunYuanMoEV1", "hunyuan-moe",
         {**SMALL, "intermediate_size": 32, "num_experts": 6, "num_experts_per_tok": 2, **rope("default")}, ONE_EXPERT,
         filled={"no shared expert": ("shared_mlp.down_proj.weight", 0)}, altered={"norm in front of the rotation": norm_first},
         keys={"expert_feed_forward_length": "intermediate_size", "expert_shared_feed_forward_length": "intermediate_size", "expert_shared_count": 1}),
    Case("bailingmoe", "softmax routing, shared experts, interleaved rotation", "GraniteMoeShared", "bailingmoe",
         {**GRANITE_EXPERTS, "shared_intermediate_size": 64, **{multiplier: 1.0 for multiplier in GRANITE_SCALES}, "attention_multiplier": 0.25,
          "tie_word_embeddings": False}, {**SMALL_BASE, **ONE_EXPERT}, filled={"no shared experts": ("output_linear.weight", 0)},
         keys={"expert_feed_forward_length": "intermediate_size", "expert_shared_count": 2, "expert_weights_norm": True, "expert_weights_scale": 1.0}),
    Case("bailingmoe2", "Q, K and V in one tensor, QK norm of heads, rotation of half a head, sigmoid routing in groups with a bias of the choice, a shared"
         " expert, a dense layer first", "Glm4Moe", "bailingmoe2",
         {**GLM4_EXPERTS, "attention_bias": False, "use_qk_norm": True, "n_routed_experts": 12, "n_group": 4, "topk_group": 2, "num_experts_per_tok": 3},
         {**GLM4_CONTROLS, **WHOLE_ROTATION, "no groups": {"n_group": 1, "topk_group": 1}},
         filled={"no bias of the choice": ("e_score_correction_bias", 0), "no QK norm weights": ("q_norm.weight", 1)}, keys=GLM4_KEYS),
    Case("cohere2moe", "parallel blocks with experts and shared ones, averaged; sigmoid routing; a dense layer first, which has positions without a window",
         "Cohere2Moe", "cohere2moe",
         {**WINDOWED, "num_hidden_layers": 5, "intermediate_size": 16, "prefix_dense_intermediate_size": 48, "first_k_dense_replace": 1, "num_experts": 6,
          "num_experts_per_tok": 2, "num_shared_experts": 2, "expert_selection_fn": "sigmoid", "sliding_window_pattern": 3, "logit_scale": 0.5,
          "layer_norm_eps": 1e-5, "rms_norm_eps": None, **rope("default")},
         {**NO_WINDOWS, **NOT_NORMALISED, "shared experts not averaged": {"shared_expert_combination_strategy": "sum"},
          "no positions in the dense layer": {"prefix_dense_sliding_window_pattern": 2, "layer_types": COHERE_LAYERS}, **ONE_EXPERT},
         num_tokens=48, keys={**WINDOW_KEY, "logit_scale": "logit_scale", "feed_forward_length": "prefix_dense_intermediate_size",
                              "expert_feed_forward_length": "intermediate_size", "expert_shared_count": "num_shared_experts", "expert_gating_func": 2,
                              "leading_dense_block_count": 1, "expert_weights_norm": True,
                              "attention.sliding_window_pattern": [kind == "sliding_attention" for kind in COHERE_LAYERS]}),
    Case("cohere2moe-rms", "the same with RMS norms, without shared experts and dense layers; a softmax of the chosen", "Cohere2Moe", "cohere2moe",
         {**WINDOWED, "num_hidden_layers": 5, "intermediate_size": 16, "num_experts": 6, "num_experts_per_tok": 2, "expert_selection_fn": "softmax",
          "logit_scale": 0.5, "rms_norm_eps": 1e-5, **rope("default")},
         {**NO_WINDOWS, "layer norms": {"rms_norm_eps": None, "layer_norm_eps": 1e-5}, **ONE_EXPERT},
         num_tokens=48, keys={**WINDOW_KEY, "logit_scale": "logit_scale", "expert_feed_forward_length": "intermediate_size", "expert_gating_func": 1,
                              "expert_weights_norm": True}),
    Case("seed-oss", "biases on Q, K and V, a norm under another name", "SeedOss", "seed_oss",
         {**SMALL, "attention_bias": True, **rope("default", 1e6)}, OTHER_BASE),
    Case("apertus", "xIELU without a gate, QK norm, llama3 scaling", "Apertus", "apertus", {**SCALED, **rope("llama3", 500.0, **LLAMA3)},
         {"no scaling": rope("default", 500.0), "GELU": {"hidden_act": "gelu"}}, num_tokens=64),
    Case("llama4", "chunks in three layers of four, queries that grow with their position and no positions in the others, QK norm without weights,"
         " experts in every other layer, sigmoid routing that weighs what experts are given, a shared expert", "Llama4", "llama4",
         {**SMALL, "num_hidden_layers": 5, "intermediate_size": 32, "intermediate_size_mlp": 48, "attention_chunk_size": 8,
          "num_local_experts": 4, "num_experts_per_tok": 2, "interleave_moe_layer_step": 2, "floor_scale": 8, "attn_scale": 0.3},
         {"no chunks": {"attention_chunk_size": 1024}, "other chunks": {"attention_chunk_size": 12},
          "no temperature": {"attn_temperature_tuning": False}, "no QK norm": {"use_qk_norm": False},
          "positions everywhere": {"no_rope_layers": [1] * 5}, **ONE_EXPERT}, num_tokens=48, config_class="Llama4TextConfig",
         keys={"attention.sliding_window": "attention_chunk_size", "attention.temperature_length": "floor_scale",
               "attention.temperature_scale": "attn_scale", "interleave_moe_layer_step": "interleave_moe_layer_step",
               "expert_feed_forward_length": "intermediate_size"}),
    Case("llama4-dense", "no experts, no windows, positions and QK norm everywhere", "Llama4", "llama4",
         {**SMALL, "intermediate_size_mlp": 48, "num_local_experts": 0, "moe_layers": [], "no_rope_layers": [1, 1],
          "layer_types": ["full_attention"] * 2},
         {"no QK norm": {"use_qk_norm": False}, "no positions": {"no_rope_layers": [1, 0]}}, config_class="Llama4TextConfig",
         keys={"attention.sliding_window": 0, "interleave_moe_layer_step": 0, "expert_feed_forward_length": "intermediate_size"}),
    Case("deepseek-v2", "latent attention, queries without a rank, keys and values in one tensor; softmax routing in groups",
         "DeepseekV2", "deepseek2", {**LATENT, "q_lora_rank": None, "topk_method": "group_limited_greedy"},
         {**SMALL_BASE, "no groups": {"topk_method": "greedy"}, "weights not scaled": {"routed_scaling_factor": 1.0}},
         num_tokens=48, keys={**LATENT_KEYS, "expert_gating_func": 1}),
    Case("deepseek-v3", "latent attention, queries with a rank, a tensor each for keys and values, YaRN of whole heads; sigmoid routing",
         "DeepseekV3", "deepseek2", {**LATENT, "q_lora_rank": 20, "norm_topk_prob": True, **rope("yarn", **YARN_32, mscale=1.0, mscale_all_dim=1.0)},
         {"no scaling": rope("default"), "scores as without scaling": rope("yarn", **YARN_32, attention_factor=1.0),
          "no groups": {"n_group": 1, "topk_group": 1}, "weights not normalised": {"norm_topk_prob": False}},
         num_tokens=96, keys={**LATENT_KEYS, "expert_weights_norm": "norm_topk_prob", "expert_gating_func": 2}),
    Case("deepseek32", "latent attention to the keys that an indexer of each layer chooses, by halves rotated; YaRN of whole heads; sigmoid routing",
         "DeepseekV32", "deepseek32", {**DEEPSEEK32, **rope("yarn", **YARN_32, mscale=1.0, mscale_all_dim=1.0)},
         {**ALL_KEYS, "a key less": {"index_topk": 18}, "no scaling": rope("default")}, filled=INDEXER_PARTS,
         altered={"other pairs of the indexer": rotate_other_pairs}, num_tokens=72, keys={**LATENT_KEYS, **INDEXER_KEYS}),
    Case("deepseek32-few", "the same with seven keys a query, without groups and scaling", "DeepseekV32", "deepseek32",
         {**DEEPSEEK32, "num_hidden_layers": 3, "n_group": 1, "topk_group": 1, "index_n_heads": 7, "index_head_dim": 16, "index_topk": 7},
         ALL_KEYS, filled=INDEXER_PARTS, altered={"other pairs of the indexer": rotate_other_pairs}, num_tokens=40,
         keys={**LATENT_KEYS, **INDEXER_KEYS}),
    Case("deepseek32-all", "the same with a text no longer than the keys that a query sees", "DeepseekV32", "deepseek32",
         {**DEEPSEEK32, "index_topk": 100}, {"few keys": {"index_topk": 19}}, num_tokens=72, keys={**LATENT_KEYS, **INDEXER_KEYS}),
    Case("glm-dsa", "latent attention to the keys that an indexer chooses, in some layers that of a layer before; the indexer's pairs are interleaved",
         "GlmMoeDsa", "glm-dsa", GLM_DSA,
         {**ALL_KEYS, "another layer's choice": {"indexer_types": ["full", "shared", "shared", "full", "shared"]}}, filled=INDEXER_PARTS,
         altered={"other pairs of the indexer": rotate_other_pairs}, num_tokens=48,
         keys={**LATENT_KEYS, **INDEXER_KEYS, "attention.indexer.types": [kind == "full" for kind in GLM_DSA["indexer_types"]]}),
    Case("glm-dsa-each", "the same with an indexer in each layer", "GlmMoeDsa", "glm-dsa",
         {**GLM_DSA, "num_hidden_layers": 3, "first_k_dense_replace": 1, "indexer_types": ["full"] * 3, "index_n_heads": 9, "index_head_dim": 24, "index_topk": 13},
         ALL_KEYS, filled=INDEXER_PARTS, altered={"other pairs of the indexer": rotate_other_pairs}, num_tokens=48,
         keys={**LATENT_KEYS, **INDEXER_KEYS}),
    Case("glm-dsa-all", "the same with a text no longer than the keys that a query sees", "GlmMoeDsa", "glm-dsa",
         {**GLM_DSA, "index_topk": 100}, {"few keys": {"index_topk": 17}}, num_tokens=48,
         keys={**LATENT_KEYS, **INDEXER_KEYS, "attention.indexer.types": [kind == "full" for kind in GLM_DSA["indexer_types"]]}),
    Case("mistral4", "latent attention with queries that grow with their position; softmax routing in groups by their two best experts", "Mistral4", "mistral4",
         {**LATENT, "q_lora_rank": 20, "norm_topk_prob": True, **rope("yarn", **YARN_32, **MINISTRAL, partial_rotary_factor=1.0)},
         {"no temperature": rope("yarn", **YARN_32, **{**MINISTRAL, "llama_4_scaling_beta": 0.0}, partial_rotary_factor=1.0),
          "no groups": {"n_group": 1, "topk_group": 1}, "weights not normalised": {"norm_topk_prob": False}},
         num_tokens=96, keys={**LATENT_KEYS, "expert_weights_norm": "norm_topk_prob", "attention.temperature_scale": 0.3}),
    Case("qwen3next", "gated delta nets in three layers of four, heads of attention with gates, rotation of a quarter of a head, QK norm,"
         " experts and a shared one with a gate", "Qwen3Next", "qwen3next",
         {**DELTA_NETS, **DELTA_EXPERTS, "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []},
         {**WHOLE_ROTATION, "weights not normalised": {"norm_topk_prob": False}},
         filled={"no memory": ("A_log", 9.0), "every update in full": ("in_proj_ba.weight", 0), "an even convolution": ("conv1d.weight", 0.5),
                 "one norm behind the rule": ("linear_attn.norm.weight", 1), "no dt_bias": ("dt_bias", 0)},
         num_tokens=96, keys={**DELTA_KEYS, **SHARED_EXPERT_KEY}),
    Case("qwen35", "gated delta nets whose value heads go with key heads in turn, beta and alpha of products of their own, dense layers",
         "Qwen3_5", "qwen35", {**DELTA_NETS, "linear_num_value_heads": 6}, WHOLE_ROTATION,
         filled={**NO_MEMORY, "an even convolution": ("conv1d.weight", 0.5), "no dt_bias": ("dt_bias", 0)},
         num_tokens=96, config_class="Qwen3_5TextConfig", keys=DELTA_KEYS),
    Case("qwen35moe", "the same with experts and a shared one with a gate", "Qwen3_5Moe", "qwen35moe", {**DELTA_NETS, **DELTA_EXPERTS}, ONE_EXPERT,
         filled=NO_MEMORY, num_tokens=96, config_class="Qwen3_5MoeTextConfig", keys={**DELTA_KEYS, **SHARED_EXPERT_KEY}),
    Case("lfm2", "gated short convolutions in three layers of five, QK norm", "Lfm2", "lfm2",
         {**LFM2, "num_hidden_layers": 5, "layer_types": ["conv", "full_attention"] * 2 + ["conv"], "block_auto_adjust_ff_dim": False}, SMALL_BASE,
         filled={"an even convolution": ("conv.conv.weight", 0.5), "no QK norm weights": ("q_layernorm.weight", 1)},
         num_tokens=48, keys={"shortconv.l_cache": "conv_L_cache"}),
    Case("lfm2moe", "the same over four tokens with biases, and experts behind a dense layer: sigmoid routing with a bias of the choice",
         "Lfm2Moe", "lfm2moe", {**LFM2, "conv_L_cache": 4, "conv_bias": True, "num_experts": 6, "num_experts_per_tok": 2,
                                "moe_intermediate_size": 16, "num_dense_layers": 1, "norm_topk_prob": True, "use_expert_bias": True},
         {**ONE_EXPERT, "weights not normalised": {"norm_topk_prob": False}},
         filled={"an even convolution": ("conv.conv.weight", 0.5), "no bias of the choice": ("expert_bias", 0),
                 "no bias of convolutions": ("conv.conv.bias", 0), "none in front": ("in_proj.bias", 0), "none behind": ("conv.out_proj.bias", 0)},
         keys={"shortconv.l_cache": "conv_L_cache", "leading_dense_block_count": "num_dense_layers", "expert_gating_func": 2}),
    Case("granite-hybrid", "Mamba-2 in two layers of three, no positions, scales of embeddings, residuals, attention and logits", "GraniteMoeHybrid",
         "granitehybrid", GRANITE_HYBRID, {"positions": {"position_embedding_type": "rope"}, "no scale of residuals": {"residual_multiplier": 1.0}},
         filled=MAMBA_CONTROLS, num_tokens=72, keys={**GRANITE_KEYS, "rope.scaling.finetuned": False}),
    Case("granite-hybrid-experts", "the same in groups, with positions, experts and shared ones", "GraniteMoeHybrid", "granitehybrid",
         {**GRANITE_HYBRID, "head_dim": 16, "num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 16, "shared_intermediate_size": 20,
          "mamba_n_groups": 2, "position_embedding_type": "rope"}, {"no positions": {"position_embedding_type": None}, **ONE_EXPERT},
         filled=MAMBA_CONTROLS, num_tokens=48,
         keys={**GRANITE_KEYS, "expert_shared_feed_forward_length": "shared_intermediate_size"}),
    Case("nemotron-h", "layers of one block each: Mamba-2, attention without positions, squared ReLU without a gate", "NemotronH", "nemotron_h",
         NEMOTRON_H, {"ReLU": {"mlp_hidden_act": "relu"}}, filled=MAMBA_CONTROLS, num_tokens=72),
    Case("nemotron-h-experts", "the same with experts of squared ReLU between products of their own, a shared one, sigmoid routing with a bias of"
         " the choice", "NemotronH", "nemotron_h_moe",
         {**NEMOTRON_H, "layers_block_type": ["linear_attention", "moe", "full_attention", "moe"], "num_hidden_layers": 4, "n_routed_experts": 6,
          "num_experts_per_tok": 2, "moe_intermediate_size": 16, "moe_shared_expert_intermediate_size": 24, "moe_latent_size": 20,
          "routed_scaling_factor": 2.5},
         {"ReLU": {"mlp_hidden_act": "relu"}, **ONE_EXPERT, **NOT_NORMALISED, "not scaled": {"routed_scaling_factor": 1.0}},
         filled={"no bias of the choice": ("e_score_correction_bias", 0), "no memory": ("A_log", 9.0)}, num_tokens=48,
         keys={"expert_shared_count": "n_shared_experts", "expert_shared_feed_forward_length": "moe_shared_expert_intermediate_size",
               "expert_weights_scale": "routed_scaling_factor", "expert_weights_norm": "norm_topk_prob", "expert_group_count": "n_group",
               "moe_latent_size": "moe_latent_size"}),
    Case("kimi-linear", "Kimi delta attention in four layers of five, whose states have a decay for each row, latent attention without positions, sigmoid"
         " routing with a bias of the choice, shared experts, dense layers first; the delta attention is kimi_delta_attention()", "KimiLinear", "kimi-linear",
         {**KIMI_LINEAR, "q_lora_rank": None, "n_group": 1, "topk_group": 1}, {"weights not normalised": {"moe_renormalize": False}, **ONE_EXPERT},
         filled={"no memory": ("A_log", 9.0), "every update in full": ("b_proj.weight", 0), "an even convolution": ("conv1d.weight", 0.5),
                 "one norm behind the rule": ("o_norm.weight", 1), "even gates behind it": ("g_a_proj.weight", 0), "no dt_bias": ("dt_bias", 0),
                 "no bias of the choice": ("e_score_correction_bias", 0)}, altered={"one decay a head": one_decay_a_head},
         num_tokens=96, keys=KIMI_LINEAR_KEYS),
    Case("kimi-linear-q-rank", "the same with other sizes, queries with a rank, experts in groups", "KimiLinear", "kimi-linear",
         {**KIMI_LINEAR, "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"], "num_attention_heads": 2,
          "num_key_value_heads": 2, "linear_num_heads": 2, "linear_head_dim": 20, "linear_conv_kernel_dim": 3, "q_lora_rank": 20, "num_local_experts": 8,
          "num_experts_per_tok": 3, "first_k_dense_replace": 2},
         {"no groups": {"n_group": 1, "topk_group": 1}, "weights not scaled": {"routed_scaling_factor": 1.0}},
         filled={"no memory": ("A_log", 9.0)}, altered={"one decay a head": one_decay_a_head}, num_tokens=48,
         keys={**KIMI_LINEAR_KEYS, "expert_group_count": "n_group"}),
]


def with_draft_layer(name, **changes):
    """The case of this name with a layer for drafts."""
    case = next(case for case in CASES if case.name == name)
    keys = {**case.keys, "block_count": make_config(case).num_hidden_layers + 1, "nextn_predict_layers": 1}
    return case._replace(name=f"{name}-mtp", covers="a layer for drafts", keys=keys, draft={"num_hidden_layers": 1, **changes})

# transformers' parameter names without "model.layers.N." -> GGUF's without "blk.N.", both without an end of .weight or .bias.
LAYER_NAMES = {
    "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm", "router.proj": "ffn_gate_inp",
    "router.scale": "ffn_gate_inp.scale", "router.per_expert_scale": "ffn_down_exps.scale", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
    "post_feedforward_layernorm_1": "post_ffw_norm_1", "post_feedforward_layernorm_2": "post_ffw_norm_2",
    "norm": "attn_norm", "input_layernorm": "attn_norm", "operator_norm": "attn_norm", "attention_layernorm": "attn_norm", "post_self_attn_layernorm": "post_attention_norm",
    "post_attention_layernorm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm", "feedforward_layernorm": "ffn_norm", "ffn_norm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm", "post_mlp_layernorm": "post_ffw_norm", "layer_scalar": "layer_output_scale.weight",
    "altup.correct_output_scale": "altup_correct_scale.weight", "altup.correction_coefs": "altup_correct_coef", "altup.prediction_coefs": "altup_predict_coef",
    "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm", "laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r",
    "laurel.post_laurel_norm": "laurel_post_norm",
    **{f"self_attn.{part}": f"attn_{name}" for part, name in {
        "q_proj": "q", "k_proj": "k", "v_proj": "v", "o_proj": "output", "out_proj": "output", "qkv_proj": "qkv", "sinks": "sinks.weight",
        "q_norm": "q_norm", "k_norm": "k_norm", "q_layernorm": "q_norm", "k_layernorm": "k_norm", "q_a_proj": "q_a", "q_a_layernorm": "q_a_norm",
        "query_layernorm": "q_norm", "key_layernorm": "k_norm",
        "q_b_proj": "q_b", "kv_a_proj_with_mqa": "kv_a_mqa", "kv_a_layernorm": "kv_a_norm", "kv_b_proj": "kv_b"}.items()},
    **{f"self_attn.indexer.{part}": f"indexer.{name}" for part, name in {
        "wq_b": "attn_q_b", "wk": "attn_k", "k_norm": "k_norm", "weights_proj": "proj"}.items()},
    **{f"linear_attn.{part}": name for part, name in {
        "in_proj_ba": "ssm_ba", "in_proj_b": "ssm_beta", "in_proj_a": "ssm_alpha", "in_proj_qkv": "attn_qkv", "in_proj_z": "attn_gate",
        "conv1d": "ssm_conv1d", "A_log": "ssm_a", "dt_bias": "ssm_dt.bias", "norm": "ssm_norm", "out_proj": "ssm_out"}.items()},
    **{f"self_attn.{part}": f"ssm_{name}" for part, name in {
        "forget_gate.f_a_proj": "f_a", "forget_gate.f_b_proj": "f_b", "forget_gate.dt_bias": "dt.bias", "forget_gate.A_log": "a", "b_proj": "beta",
        "g_a_proj": "g_a", "g_b_proj": "g_b", "o_norm": "norm"}.items()},
    **{f"{block}.{part}": name for block in ("mamba", "mixer") for part, name in {
        "in_proj": "ssm_in", "conv1d": "ssm_conv1d", "A_log": "ssm_a", "D": "ssm_d", "dt_bias": "ssm_dt.bias", "norm": "ssm_norm",
        "out_proj": "ssm_out"}.items()},
    **{f"mixer.{part}": name for part, name in {
        "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "up_proj": "ffn_up", "down_proj": "ffn_down",
        "gate": "ffn_gate_inp", "gate.e_score_correction_bias": "exp_probs_b.bias", "shared_experts.up_proj": "ffn_up_shexp",
        "shared_experts.down_proj": "ffn_down_shexp", "fc1_latent_proj": "ffn_latent_down", "fc2_latent_proj": "ffn_latent_up"}.items()},
    **{f"conv.{part}": f"shortconv.{part}" for part in ("in_proj", "conv", "out_proj")},
    **{f"{block}.{part}": f"ffn_{name}" for block in ("mlp", "feed_forward", "block_sparse_moe", "shared_mlp") for part, name in {
        "gate_proj": "gate", "up_proj": "up", "down_proj": "down", "gate_up_proj": "up", "c_fc": "up", "c_proj": "down",
        "w1": "gate", "w2": "down", "w3": "up", "gate": "gate_inp", "router": "gate_inp", "gate.wg": "gate_inp",
        "shared_mlp.gate_proj": "gate_shexp", "shared_mlp.up_proj": "up_shexp", "shared_mlp.down_proj": "down_shexp",
        "shared_expert_gate": "gate_inp_shexp", "shared_expert.gate_proj": "gate_shexp", "shared_expert.up_proj": "up_shexp",
        "shared_expert.down_proj": "down_shexp", "shared_experts.gate_proj": "gate_shexp", "shared_experts.up_proj": "up_shexp",
        "shared_experts.down_proj": "down_shexp", "output_linear": "down_shexp"}.items()},
    "mlp.gate.e_score_correction_bias": "exp_probs_b.bias", "mlp.gate.moe_statics.e_score_correction_bias": "exp_probs_b.bias",
    "mlp.e_score_correction_bias": "exp_probs_b.bias", "block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias", "feed_forward.expert_bias": "exp_probs_b.bias",
}
SPLITS_LATENT = ("DeepseekV3", "DeepseekV32", "GlmMoeDsa", "Mistral4", "KimiLinear")
LATENT_ARCHITECTURES = ("deepseek2", "deepseek32", "glm-dsa", "mistral4", "kimi-linear")
MAMBA_FAMILIES = ("GraniteMoeHybrid", "NemotronH")
DELTA_FAMILIES = ("Qwen3Next", "Qwen3_5", "Qwen3_5Moe")
# Their post_attention_layernorm is not called ffn_norm in GGUF.
POST_ATTENTION_NORM = ("Exaone4", "Gemma2", "Gemma3", "Gemma3n", "Gemma4", "Glm4Moe", "GptOss", "Olmo2", "Olmo3", "SeedOss", *DELTA_FAMILIES)
CHOICE_BIASES = ("e_score_correction_bias", "expert_bias")  # buffers
TRANSPOSED_EXPERTS = ("GptOss", "Llama4")  # [num_experts, in, out]
# Architectures whose converters reorder the rows of Q and K from halves to pairs.
REORDERED = ("llama", "smollm3", "granite", "granitemoe", "granitehybrid", "internlm2", "mistral3", "bailingmoe")
OTHER_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.embeddings": "token_embd", "model.norm_f": "output_norm", "lm_head": "output", "model.embedding_norm": "token_embd_norm",
               "model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
               "model.per_layer_projection_norm": "per_layer_proj_norm"}


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
    if case.family == "KimiLinear" and dtype == torch.float64:
        for layer in model.model.layers:
            if hasattr(layer.self_attn, "forget_gate"):
                layer.self_attn.forward = functools.partial(kimi_delta_attention, layer.self_attn)
    return model


def kimi_delta_attention(module, hidden_states, **_):
    """A layer of Kimi delta attention (Kimi Team 2025, "Kimi Linear", section 3), token after token in float64, where transformers takes
    chunks of tokens in float32. The states of heads are [key, value]."""
    x = hidden_states[0]
    heads, size, kernel = module.num_heads, module.head_dim, module.conv_kernel_size
    weight = module.conv1d.weight.squeeze(1)
    inputs = torch.cat([x.new_zeros(kernel - 1, weight.shape[0]), torch.cat([module.q_proj(x), module.k_proj(x), module.v_proj(x)], dim=-1)])
    convolved = torch.nn.functional.silu(sum(inputs[j:j + len(x)] * weight[:, j] for j in range(kernel)))
    q, k, v = (part.reshape(-1, heads, size) for part in convolved.chunk(3, dim=-1))
    q, k = (part / torch.sqrt(part.pow(2).sum(-1, keepdim=True) + 1e-6) for part in (q, k))
    gate = module.forget_gate
    raw = (gate.f_b_proj(gate.f_a_proj(x)) + gate.dt_bias).reshape(-1, heads, size)
    decay = torch.exp(-torch.exp(gate.A_log.reshape(heads, 1)) * torch.nn.functional.softplus(raw, threshold=1e3))
    strength = torch.sigmoid(module.b_proj(x))
    state, out = x.new_zeros(heads, size, size), []
    for t in range(len(x)):
        state = decay[t, :, :, None] * state
        wanted = strength[t, :, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * wanted[:, None]
        out.append(torch.einsum("hkv,hk->hv", state, q[t]) / math.sqrt(size))
    out = torch.stack(out)
    normed = out * torch.rsqrt(out.pow(2).mean(-1, keepdim=True) + module.o_norm.variance_epsilon) * module.o_norm.weight
    gates = torch.sigmoid(module.g_b_proj(module.g_a_proj(x))).reshape(-1, heads, size)
    return module.o_proj((normed * gates).flatten(1))[None]


CASES += [with_draft_layer("qwen35", layer_types=["full_attention"]), with_draft_layer("glm4moe", first_k_dense_replace=0),
          with_draft_layer("deepseek-v3", first_k_dense_replace=0)]


def xielu_modules(model):
    return [module for module in model.modules() if type(module).__name__ == "XIELUActivation"]


def adds_one(case, name):
    """Whether this norm multiplies by 1 + w: Gemma's do, up to the third, and those of Qwen's hybrids, but for that behind the delta rule."""
    return case.family in ("Gemma", "Gemma2", "Gemma3", *DELTA_FAMILIES) and name.endswith("norm.weight") and "linear_attn" not in name


def mean_and_deviation(case, name, shape):
    """Of a parameter's values. Gains keep attention selective and routing decided: with transformers' own initialisation (0.02)
    attention is almost uniform and no positional encoding shows in the logits."""
    if name.endswith(("query_layernorm.weight", "key_layernorm.weight")):  # so different that their place behind the rotation shows
        return 1.5, 0.5
    if "norm" in name and name.endswith(".weight"):
        of_heads = 0.6 if case.family in ("Gemma3n", "Gemma4") else 1.5  # unscaled scores grow with the size of the heads
        return of_heads if "q_norm" in name or "k_norm" in name else 1.0, 0.1
    if name.endswith("A_log"):  # decays over some tokens and over many
        return np.linspace(-3, 1, max(shape), dtype=np.float32).reshape(shape), 0.1
    if name.endswith("layer_scalar"):
        return 0.6, 0.1
    if name.endswith("correct_output_scale"):
        return 1.5, 0.5
    if name.endswith("modality_router.weight"):  # transformers divides its input by the hidden size
        return 0, np.sqrt(shape[-1])
    if name.endswith("scale"):  # of experts, and of a router's input, which is small
        return (1.0, 0.3) if "expert" in name else (8.0, 1.0)
    if "alpha" in name:
        return 0.8, 0.1
    if name.endswith(".D"):
        return 1, 0.3
    if name.endswith(".sinks"):
        return 0, 1
    if name.endswith("bias"):
        return 0, 0.1 if name.endswith(CHOICE_BIASES) else 0.5
    if "embed_tokens" in name or "embeddings" in name:  # small beside the outputs of the layers, or a tied model would repeat its input for ever
        return 0, 0.1
    is_transposed = case.family in TRANSPOSED_EXPERTS and ".experts." in name
    decides = ("q_proj.weight", "qkv_proj.weight", "k_proj.weight", "q_b_proj.weight", "kv_a_proj_with_mqa.weight",
               "mlp.gate.weight", "mixer.gate.weight", "gate.wg.weight", "feed_forward.gate.weight", "lm_head.weight", "router.weight")
    gain = 2.0 if name.endswith(decides) else 1.0
    if case.family == "GptOss" and name.endswith("experts.gate_up_proj"):  # large enough for the clamp to matter
        gain = 6.0
    return 0, gain / np.sqrt(shape[-2 if is_transposed else -1])


def draw_weights(case, rng):
    """name -> float32 array for every parameter."""
    # The shapes of a model on the meta device, which neither allocates nor initialises.
    with torch.device("meta"):
        model = getattr(transformers, case.family + "ForCausalLM")(make_config(case))
    weights = {}
    choices = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith(CHOICE_BIASES + ("layer_scalar",))]
    for name, parameter in sorted([*model.named_parameters(), *choices]):
        mean, deviation = mean_and_deviation(case, name, tuple(parameter.shape))
        weights[name] = np.float32(mean) + np.float32(deviation) * rng.standard_normal(tuple(parameter.shape), dtype=np.float32)
        if adds_one(case, name):
            weights[name] -= np.float32(1.0)
    return weights


def interleave_heads(weight, num_heads):
    """Rows of Q or K, reordered so that RoPE's pairs (i, i + d/2) of a head become (2i, 2i + 1): arch llama's order."""
    rows = weight.shape[0]
    halves = weight.reshape(num_heads, 2, rows // num_heads // 2, *weight.shape[1:])
    return halves.swapaxes(1, 2).reshape(weight.shape)


def split_latent(config, weight):
    """Of each head the keys' weights, transposed, and the values', as converters write them since April 2025."""
    heads = weight.reshape(config.num_attention_heads, -1, config.kv_lora_rank)
    keys, values = np.split(heads, [config.qk_nope_head_dim], axis=1)
    return keys.swapaxes(1, 2), values


def split_delta_heads(config, weight):
    """Of each key head rows of q, k, its value heads' v and their z; converters write those of all q, k and v, and those of all z."""
    heads = weight.reshape(config.linear_num_key_heads, -1, weight.shape[1])
    key = config.linear_key_head_dim
    values = config.linear_num_value_heads // config.linear_num_key_heads * config.linear_value_head_dim
    q, k, v, z = (part.reshape(-1, weight.shape[1]) for part in np.split(heads, np.cumsum([key, key, values]), axis=1))
    return np.concatenate([q, k, v]), z


def values_in_turn(config, name, weight):
    """Qwen3.5's converter has the value heads of key heads in turn instead of side by side, wherever they count."""
    keys, values = config.linear_num_key_heads, config.linear_num_value_heads

    def in_turn(part, axis=0):
        heads = part.reshape(*part.shape[:axis], keys, values // keys, -1, *part.shape[axis + 1:])
        return heads.swapaxes(axis, axis + 1).reshape(part.shape)

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
    pairs = config.per_layer_config["full_attention"].head_dim // 2
    rotated = int(pairs * full_rope(config)["partial_rotary_factor"])
    return np.array([1.0] * rotated + [1e30] * (pairs - rotated), dtype=np.float32)


def expert_tensors(case, rest, weight):
    """Experts are [num_experts, rows, cols] in GGUF, with gate and up apart. Here, rows of gate are in front of those of up, or in turn
    with them (gpt-oss)."""
    end, kind = "shexp" if rest.startswith("shared_mlp.") else "exps", "bias" if rest.endswith("_bias") else "weight"
    if case.family in TRANSPOSED_EXPERTS and kind == "weight":
        weight = weight.swapaxes(1, 2)
    if "down_proj" in rest:
        return {f"ffn_down_{end}.{kind}": weight}
    if case.family == "NemotronH":  # no gate
        return {f"ffn_up_{end}.{kind}": weight}
    if case.family == "GptOss":
        gate, up = weight[:, ::2], weight[:, 1::2]
    else:
        gate, up = np.split(weight, 2, axis=-2)
    return {f"ffn_gate_{end}.{kind}": gate, f"ffn_up_{end}.{kind}": up}


def gguf_name(case, rest):
    """GGUF's name of a layer's parameter, without blk.N."""
    stem, dot, kind = rest.rpartition(".")
    if stem == "post_attention_layernorm" and case.family in POST_ATTENTION_NORM and case.arch != "bailingmoe2":
        return f"post_attention_norm.{kind}"
    return f"{LAYER_NAMES[stem]}.{kind}" if kind in ("weight", "bias") else LAYER_NAMES[rest]


def layer_tensors(case, config, rest, weight):
    """GGUF name without blk.N -> array, of a parameter named without model.layers.N."""
    if "experts." in rest and "shared_experts" not in rest or rest == "shared_mlp.input_linear.weight":
        return expert_tensors(case, rest, weight)
    if case.family in SPLITS_LATENT and rest == "self_attn.kv_b_proj.weight":
        return dict(zip(("attn_k_b.weight", "attn_v_b.weight"), split_latent(config, weight)))
    if rest == "linear_attn.in_proj_qkvz.weight":
        return dict(zip(("attn_qkv.weight", "attn_gate.weight"), split_delta_heads(config, weight)))
    if case.family.startswith("Qwen3_5") and rest.startswith("linear_attn."):
        weight = values_in_turn(config, rest.removeprefix("linear_attn."), weight)
    if rest == "self_attn.conv1d.weight":  # of q, k and v, as the checkpoints have them
        return {f"ssm_conv1d_{part}.weight": of_part[np.newaxis] for part, of_part in zip("qkv", np.split(weight, 3))}
    if rest.endswith(".A_log"):
        weight = -np.exp(weight)
    if rest in ("linear_attn.conv1d.weight", "conv.conv.weight", "mamba.conv1d.weight", "mixer.conv1d.weight"):
        weight = weight.squeeze(1)
    if rest in ("mamba.A_log", "mamba.D", "mixer.A_log", "mixer.D"):
        weight = weight[:, np.newaxis]
    if rest in ("mamba.norm.weight", "mixer.norm.weight"):
        weight = weight.reshape(mamba_sizes(config)["ssm.group_count"], -1)
    if case.arch in REORDERED and "q_proj" in rest:
        weight = interleave_heads(weight, config.num_attention_heads)
    if case.arch in REORDERED and "k_proj" in rest:
        weight = interleave_heads(weight, config.num_key_value_heads)
    if rest in ("mlp.shared_expert_gate.weight", "mlp.gate.moe_statics.e_score_correction_bias"):
        weight = weight[0]
    return {gguf_name(case, rest): weight}


def gguf_tensors(case, weights):
    """GGUF name -> float32 array."""
    config = make_config(case)
    tensors = {}
    for name, weight in weights.items():
        if adds_one(case, name):
            weight = weight + np.float32(1.0)
        stem, kind = name.rsplit(".", 1)
        if stem in OTHER_NAMES:
            tensors[f"{OTHER_NAMES[stem]}.{kind}"] = weight
            continue
        if stem.startswith("model.altup_"):  # one matrix for each stream but the first, in order
            stacked = "altup_unembd_proj.weight" if "unembed" in stem else "altup_proj.weight"
            tensors[stacked] = np.stack([*tensors.get(stacked, []), weight])
            continue
        _, _, layer, rest = name.split(".", 3)
        block = f"blk.{layer}."
        if "_layernorm.norms." in rest:  # one parameter for each head, in order
            of_heads = f"{block}attn_{rest.split('.')[1][0]}_norm.weight"
            tensors[of_heads] = np.stack([*tensors.get(of_heads, []), weight])
        elif ".alpha_" not in rest:  # those are metadata
            own = layer_tensors(case, config, rest, weight)
            if case.family == "GraniteMoeHybrid" and not config.num_local_experts:  # the shared experts are the feed-forward block
                own = {name.replace("_shexp", ""): values for name, values in own.items()}
            tensors |= {block + name: values for name, values in own.items()}
    for layer in range(config.num_hidden_layers if case.arch == "bailingmoe2" else 0):
        parts = [tensors.pop(f"blk.{layer}.attn_{part}.weight") for part in "qkv"]
        tensors[f"blk.{layer}.attn_qkv.weight"] = np.concatenate(parts)
    parameters = full_rope(config)
    if parameters["rope_type"] == "llama3":
        tensors["rope_freqs.weight"] = llama3_rope_factors(config)
    if parameters["rope_type"] == "proportional":
        tensors["rope_freqs.weight"] = proportional_rope_factors(config)
    if parameters["rope_type"] == "longrope":
        for length in ("long", "short"):
            tensors[f"rope_factors_{length}.weight"] = np.array(parameters[f"{length}_factor"], dtype=np.float32)
    return tensors


def full_rope(config):
    """The rotary parameters of layers without a window."""
    return config.rope_parameters.get("full_attention", config.rope_parameters)


def add_hyperparameters(writer, case):
    config, arch = make_config(case), case.arch
    writer.add_all("general.", {"architecture": arch, "name": case.name, "file_type": 0})  # all F32
    sizes = {
        "context_length": config.max_position_embeddings, "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers, "feed_forward_length": getattr(config, "intermediate_size_mlp", config.intermediate_size),
        "attention.head_count": config.num_attention_heads,
    }
    if case.family in DELTA_FAMILIES:
        sizes["ssm.inner_size"] = config.linear_value_head_dim * config.linear_num_value_heads
        attend = [False] if case.draft else []
        writer.add(f"{arch}.attention.recurrent_layers", [kind == "linear_attention" for kind in config.layer_types] + attend)
        if arch != "qwen3next":  # pairs of a head by time, height and width, which are the same position for text
            writer.add(f"{arch}.rope.dimension_sections", [11, 11, 10, 0])
    if case.family in MAMBA_FAMILIES:
        sizes |= mamba_sizes(config)
    if case.family == "NemotronH":  # layers are single blocks
        del sizes["feed_forward_length"]
        size = config.moe_intermediate_size if arch == "nemotron_h_moe" else config.intermediate_size
        writer.add(f"{arch}.feed_forward_length", [size if kind in ("mlp", "moe") else 0 for kind in config.layer_types])
    if case.family == "Gemma4":
        add_sizes_of_layers(writer, arch, sizes, config)
    else:
        if case.family.startswith("Lfm2") or case.family in (*MAMBA_FAMILIES, "KimiLinear"):
            of_attention = 1 if case.family == "KimiLinear" else config.num_key_value_heads
            kv_heads = [0 if kind != "full_attention" else of_attention for kind in config.layer_types]
            writer.add(f"{arch}.attention.head_count_kv", kv_heads)
        else:
            sizes["attention.head_count_kv"] = config.num_key_value_heads
        sizes["attention.key_length"] = config.head_dim
        sizes["rope.dimension_count"] = int(config.head_dim * full_rope(config).get("partial_rotary_factor", 1.0))
    sizes["vocab_size"] = config.vocab_size
    sizes.setdefault("attention.value_length", sizes["attention.key_length"])
    if case.arch in LATENT_ARCHITECTURES:
        add_latent_sizes(sizes, config, is_new=case.family in SPLITS_LATENT)
    if case.family == "KimiLinear":  # an array; and its converter has another number as the size of a value
        del sizes["attention.head_count_kv"]
        sizes["attention.value_length"] = config.hidden_size // config.num_attention_heads
    if "num_experts_per_tok" in case.config:
        sizes["expert_count"] = getattr(config, "num_local_experts", None) or config.num_experts
        sizes["expert_used_count"] = config.num_experts_per_tok
    if "moe_intermediate_size" in case.config:
        sizes["expert_feed_forward_length"] = config.moe_intermediate_size
    if case.family == "Gemma3n":
        deviations = torch.distributions.Normal(0, 1).icdf(torch.tensor(config.activation_sparsity_pattern, dtype=torch.float32))
        sizes["activation_sparsity_scale"] = deviations.tolist()  # -inf: all gates count
        sizes["attention.sliding_window_pattern"] = [kind == "sliding_attention" for kind in config.layer_types]
        sizes["rope.freq_base_swa"] = config.rope_parameters["sliding_attention"]["rope_theta"]
    of_case = {key: getattr(config, value) if isinstance(value, str) else value for key, value in case.keys.items()}
    writer.add_all(f"{arch}.", sizes | of_case)
    layer_norm_epsilon = case.config.get("layer_norm_eps", case.config.get("norm_epsilon"))
    if case.family == "NemotronH":
        layer_norm_epsilon = config.layer_norm_epsilon  # of RMS norms, under the other key
    if layer_norm_epsilon is None:
        writer.add(f"{arch}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    else:
        writer.add(f"{arch}.attention.layer_norm_epsilon", layer_norm_epsilon)
    stretched = full_rope(config).get("alpha", 1.0) ** (config.head_dim / (config.head_dim - 2))
    writer.add(f"{arch}.rope.freq_base", full_rope(config)["rope_theta"] * stretched)
    add_rope_scaling(writer, arch, full_rope(config), config)


def add_sizes_of_layers(writer, arch, sizes, config):
    """Full layers and those with a window have heads of their own; the former's rotation is in rope_freqs.weight."""
    for kind, suffix in (("full_attention", ""), ("sliding_attention", "_swa")):
        for key in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
            sizes[key + suffix] = config.per_layer_config[kind].head_dim
    kv_heads = [config.per_layer_config[layer].num_key_value_heads for layer in range(config.num_hidden_layers)]
    writer.add(f"{arch}.attention.head_count_kv", kv_heads)
    writer.add(f"{arch}.attention.sliding_window_pattern", [kind == "sliding_attention" for kind in config.layer_types])
    writer.add(f"{arch}.rope.freq_base_swa", config.rope_parameters["sliding_attention"]["rope_theta"])


def mamba_sizes(config):
    """Of Mamba-2, under GGUF's keys."""
    if config.model_type == "nemotron_h":
        heads, size, groups, state, conv = (config.mamba_num_heads, config.mamba_head_dim, config.n_groups, config.ssm_state_size,
                                            config.conv_kernel)
    else:
        heads, size, groups, state, conv = (config.mamba_n_heads, config.mamba_d_head, config.mamba_n_groups, config.mamba_d_state,
                                            config.mamba_d_conv)
    return {"ssm.conv_kernel": conv, "ssm.inner_size": heads * size, "ssm.state_size": state, "ssm.time_step_rank": heads, "ssm.group_count": groups}


def add_latent_sizes(sizes, config, is_new):
    """Older files say the sizes of a head alone, newer ones those that attention sees beside them."""
    key, value = config.qk_nope_head_dim + config.qk_rope_head_dim, config.v_head_dim
    if config.q_lora_rank is not None:
        sizes["attention.q_lora_rank"] = config.q_lora_rank
    sizes["attention.kv_lora_rank"] = config.kv_lora_rank
    if is_new:
        sizes |= {"attention.head_count_kv": 1, "attention.key_length_mla": key, "attention.value_length_mla": value}
        key, value = config.kv_lora_rank + config.qk_rope_head_dim, config.kv_lora_rank
    sizes |= {"attention.key_length": key, "attention.value_length": value}


def add_xielu(writer, weights, model):
    """Apertus: keys without an architecture, one number a layer; alpha before its softplus."""
    activations = xielu_modules(model)
    alphas = {alpha: [float(weights[name].item()) for name in sorted(weights) if name.endswith(alpha)] for alpha in ("alpha_p", "alpha_n")}
    writer.add_all("xielu.", {**alphas, "beta": [each._beta_scalar for each in activations], "eps": [each._eps_scalar for each in activations]})


def add_rope_scaling(writer, arch, parameters, config):
    """YaRN and linear scaling are metadata; llama3 is the tensor rope_freqs.weight and nothing else; LongRoPE is two tensors, the
    original context and a magnitude, without a type.

    No yarn_attn_factor: an absent one means 1 + 0.1 ln(factor), for transformers and llama.cpp alike. llama.cpp's converter
    writes the betas as here, but its loader takes them from the command line for arch llama; transformers uses the model's.
    """
    kind, original = parameters["rope_type"], parameters.get("original_max_position_embeddings")
    values = {}
    if kind == "longrope":
        stretch = config.max_position_embeddings / original
        values = {"original_context_length": original, "attn_factor": math.sqrt(1 + math.log(stretch) / math.log(original))}
    if kind in ("linear", "yarn"):
        values = {"type": kind, "factor": parameters["factor"]}
    if kind == "yarn":
        values["original_context_length"] = original
        values |= {f"yarn_{beta}": parameters[beta] for beta in ("beta_fast", "beta_slow") if beta in parameters}
        if "mscale_all_dim" in parameters:
            values["yarn_log_multiplier"] = (0.1 if arch in LATENT_ARCHITECTURES else 1.0) * parameters["mscale_all_dim"]
    writer.add_all(f"{arch}.rope.scaling.", values)


def add_tokenizer(writer):
    """A SentencePiece-type vocabulary: <unk> <s> </s>, the 256 bytes, the space mark, a to z, two words."""
    normal = ["\u2581"] + [chr(c) for c in range(ord("a"), ord("z") + 1)] + ["\u2581a", "\u2581i"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)] + normal
    types = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)  # unknown, control, byte, normal
    scores = [0.0] * 259 + [-float(i) for i in range(VOCAB - 259)]
    writer.add_all("tokenizer.ggml.", {
        "model": "llama", "pre": "default", "tokens": tokens, "scores": scores, "token_type": types, "bos_token_id": 1, "eos_token_id": 2,
        "unknown_token_id": 0, "add_bos_token": True, "add_eos_token": False, "add_space_prefix": True})


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
        choice_bias = inputs[1] if len(inputs) > 1 else getattr(module, "e_score_correction_bias", None)
        scores = torch.softmax(logits, dim=-1) if choice_bias is None else torch.sigmoid(logits) + choice_bias
        if hasattr(module, "moe_statics"):
            scores = scores + module.moe_statics.e_score_correction_bias
        if getattr(module, "num_group", None) and module.num_group > 1 and getattr(module, "topk_method", "groups") != "greedy":
            scores = best_groups(module, scores)
        best = scores.sort(dim=-1, descending=True).values
        gaps.append(float((1 - best[:, top_k] / best[:, top_k - 1]).min()))

    def best_groups(module, scores):
        """The scores of experts in groups that count, 0 for others; the gap between groups counts too."""
        grouped = scores.view(scores.shape[0], module.num_group, -1)
        best_of_group = 2 if hasattr(module, "e_score_correction_bias") or type(module).__name__.startswith("Mistral4") else 1
        worth = grouped.topk(best_of_group, dim=-1).values.sum(dim=-1)
        best, order = worth.sort(dim=-1, descending=True)
        gaps.append(float((1 - best[:, module.topk_group] / best[:, module.topk_group - 1]).min()))
        counts = torch.zeros_like(worth).scatter_(1, order[:, :module.topk_group], 1)
        return (grouped * counts.unsqueeze(-1)).flatten(1)

    is_router = lambda module: type(module).__name__.lower().endswith(("topkrouter", "llama4router"))
    routers = [module for name, module in model.named_modules() if is_router(module) or name.endswith(("router.proj", "gate.wg"))]
    hooks = [router.register_forward_hook(record) for router in routers]
    run(model, tokens)
    for hook in hooks:
        hook.remove()
    return min(gaps)


def choice_margin(model, tokens):
    """Smallest gap between the last key that an indexer chose and the first one left out, in deviations of the query's scores."""
    gaps, chooses, topk = [], [False], torch.Tensor.topk

    def record(scores, count, dim=-1, **options):
        if chooses[0]:
            for position, row in enumerate(scores[0]):
                seen = row[:position + 1].double()
                if len(seen) > count:
                    best = seen.sort(descending=True).values
                    gaps.append(float((best[count - 1] - best[count]) / seen.std()))
        return topk(scores, count, dim=dim, **options)

    def switch(on):
        return lambda *_: chooses.__setitem__(0, on)

    indexers = [module for module in model.modules() if type(module).__name__.endswith("Indexer")]
    hooks = [hook for indexer in indexers
             for hook in (indexer.register_forward_pre_hook(switch(True)), indexer.register_forward_hook(switch(False)))]
    torch.Tensor.topk = record
    run(model, tokens)
    torch.Tensor.topk = topk
    for hook in hooks:
        hook.remove()
    return min(gaps, default=math.inf)


def nmse(value, reference):
    return float(np.sum((value - reference) ** 2) / np.sum(reference**2))


def rounded(value):
    """Two digits: evidence for a reader, not noise in a diff."""
    return float(f"{value:.1e}")


def evidence(case, weights, model, tokens, logits):
    """The entry of golden.json."""
    def distance(changes=None, weights=weights, dtype=torch.float64):
        return rounded(nmse(run(make_model(case, weights, dtype, changes), tokens), logits))

    continuation, margin = greedy(model, tokens)
    entry = {"name": case.name, "covers": case.covers, "num_tokens": len(tokens), "greedy": continuation, "greedy_margin": rounded(margin),
             "float32_nmse": distance(dtype=torch.float32), "controls": {name: distance(changes) for name, changes in case.controls.items()}}
    for name, (end, value) in case.filled.items():
        changed = {key: np.full_like(weight, value) if key.endswith(end) else weight for key, weight in weights.items()}
        entry["controls"][name] = distance(weights=changed)
    for name, alter in case.altered.items():
        other = make_model(case, weights, torch.float64)
        alter(other)
        entry["controls"][name] = rounded(nmse(run(other, tokens), logits))
    if used := case.config.get("num_experts_per_tok", case.config.get("top_k_experts", case.config.get("moe_k"))):
        entry["router_margin"] = rounded(router_margin(model, tokens + continuation, used))
    if "index_topk" in case.config and (margin := choice_margin(model, tokens + continuation)) < math.inf:
        entry["choice_margin"] = rounded(margin)
    return entry


def objection(entry):
    """Why such a model could not tell a right engine from a wrong one, or None."""
    if entry["greedy_margin"] < 5e-3 or entry.get("router_margin", 1) < 5e-3:
        return "a token or an expert wins too narrowly: rounding could choose another"
    if entry.get("choice_margin", 1) < 1e-4:
        return "a key wins too narrowly: rounding could choose another"
    if BASE_CONFIG["eos_token_id"] in entry["greedy"] or len(set(entry["greedy"])) < GREEDY_TOKENS // 2:
        return "the greedy continuation ends or repeats itself"
    if entry["float32_nmse"] > NMSE_TOLERANCE / 100:
        return "rounding alone comes near the tolerance"
    if min(entry["controls"].values()) < 1e5 * NMSE_TOLERANCE:
        return "a control comes near the tolerance"
    return None


class DraftLayer:
    """A layer that predicts the token behind the next one (DeepSeek-AI 2024, "DeepSeek-V3 technical report", section 2.2), made of the one
    layer of a model of the same family: its input is a product of a token's embedding and of the hidden state in front, each normed."""

    def __init__(self, case, rng):
        self.layer_case = case._replace(config=case.config | case.draft)
        self.layer_weights = draw_weights(self.layer_case, rng)
        size = make_config(case).hidden_size
        self.norms = {name: np.float32(1.0) + np.float32(0.1) * rng.standard_normal(size, dtype=np.float32) for name in ("enorm", "hnorm")}
        self.projection = rng.standard_normal((size, 2 * size), dtype=np.float32) / np.float32(math.sqrt(2 * size))

    def tensors(self, case):
        layer = make_config(case).num_hidden_layers
        own = {name.replace("layers.0.", f"layers.{layer}."): weight for name, weight in self.layer_weights.items() if ".layers.0." in name}
        norm = self.layer_weights["model.norm.weight"] + np.float32(1.0 if adds_one(case, "model.norm.weight") else 0.0)
        parts = {**{f"{name}.weight": norm for name, norm in self.norms.items()}, "eh_proj.weight": self.projection, "shared_head_norm.weight": norm}
        return gguf_tensors(case, own) | {f"blk.{layer}.nextn.{part}": weight for part, weight in parts.items()}

    def logits(self, model, tokens, sees_hidden=True):
        """[len(tokens) + 1, VOCAB]: at each position, behind the true hidden state in front (none: zeros), and at the last position once
        more, as a second draft: behind the layer's own hidden state."""
        layer = make_model(self.layer_case, self.layer_weights, torch.float64)

        def normed(name, x):
            scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps)
            return x * scale * torch.from_numpy(self.norms[name]).double()

        def hidden_of(previous):
            rows = torch.cat([normed("enorm", embedded), normed("hnorm", previous)], dim=-1) @ torch.from_numpy(self.projection).double().T
            return layer.model(inputs_embeds=rows[None], use_cache=False).last_hidden_state[0]

        with torch.no_grad():
            embedded = model.model.embed_tokens(torch.tensor(tokens))
            hidden = model.model(torch.tensor([tokens]), use_cache=False).last_hidden_state[0]
            previous = torch.cat([torch.zeros_like(hidden[:1]), hidden[:-1]]) * (1.0 if sees_hidden else 0.0)
            own = hidden_of(previous)
            previous[-1] = own[-2]
            return model.lm_head(torch.cat([own, hidden_of(previous)[-1:]])).double().numpy()


def draw_case(case, seed):
    """The first draw without objection: weights, tokens, the model in float64, its logits, the entry of golden.json, and the layer for drafts."""
    for draw in range(MAX_DRAWS):
        # The name is part of the generator's seed, so that one model can change without the others.
        rng = np.random.default_rng([seed, draw, *case.name.encode()])
        weights = draw_weights(case, rng)
        tokens = [1, *rng.integers(3, VOCAB, case.num_tokens - 1).tolist()]
        model = make_model(case, weights, torch.float64)
        logits = run(model, tokens)
        entry = evidence(case, weights, model, tokens, logits)
        draft = DraftLayer(case, rng) if case.draft else None
        if objection(entry) is None:
            return weights, tokens, model, logits, entry, draft
    sys.exit(f"{case.name}: none of {MAX_DRAWS} draws is usable; the last: {objection(entry)} ({entry})")


def write_case(case, seed, folder):
    """Writes NAME.gguf and NAME.logits; returns the entry of golden.json."""
    weights, tokens, model, logits, entry, draft = draw_case(case, seed)
    writer = GgufWriter()
    add_hyperparameters(writer, case)
    if xielu_modules(model):
        add_xielu(writer, weights, model)
    add_tokenizer(writer)
    for name, tensor in gguf_tensors(case, weights).items():
        writer.add_tensor(name, tensor, TensorType.F32)
    if draft:
        for name, tensor in draft.tensors(case).items():
            writer.add_tensor(name, tensor, TensorType.F32)
        drafts = draft.logits(model, tokens)
        entry["controls"]["drafts without hidden states"] = rounded(nmse(draft.logits(model, tokens, sees_hidden=False), drafts))
        (folder / f"{case.name}.drafts").write_bytes(drafts.astype("<f4").tobytes())
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
    golden_file = arguments.out / "golden.json"
    known = {entry["name"]: entry for entry in json.loads(golden_file.read_text())["models"]} if arguments.only else {}
    for case in CASES:
        if not arguments.only or case.name in arguments.only:
            entry = known[case.name] = write_case(case, arguments.seed, arguments.out)
            print(f"{case.name}: float32 {entry['float32_nmse']}, controls {entry['controls']}")
    golden = {
        "made_by": f"scripts/golden/make_golden_models.py --seed {arguments.seed}",
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__},
        "nmse_tolerance": NMSE_TOLERANCE,
        "models": [known[case.name] for case in CASES if case.name in known],
    }
    golden_file.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
