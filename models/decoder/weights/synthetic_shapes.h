#pragma once

#include <cstdint>
#include <string_view>

#include "models/decoder/config/config.h"

/// The models that there are random weights for, and the types that these may have. Behind make_synthetic_model().
namespace minfer::synthetic {

/// Options of families beyond Llama's.
struct ShapeOptions {
  int32_t window = 0;       ///< of the layers to which the family gives a window
  int32_t rotary_size = 0;  ///< 0: the head size
  float attention_cap = 0.0f;
  float logit_cap = 0.0f;
  float residual_scale = 1.0f;
  int32_t dense_layers = 0, dense_ffn = 0;  ///< the first layers of a model with experts, without them
  int32_t expert_period = 1;                ///< see ModelConfig
  int32_t shared_ffn = 0;                   ///< of all shared experts together
  bool normalises = false;                  ///< weights of experts, if the family leaves this to the file
  bool qkv_bias = false;                    ///< for a family that leaves this to the file
  bool biases = false;                      ///< of attention's output, routers and experts
  float yarn_factor = 0.0f;                 ///< from a context of 4,096; 0: none
  int32_t window_kv_heads = 0, window_head_size = 0;  ///< of layers with windows; 0: like other layers
  bool values_are_keys = false;                       ///< in layers without a window
  int32_t layer_input = 0;                            ///< ModelConfig::layer_input_size
  int32_t shared_kv_layers = 0;  ///< the last layers, which have no keys and values of their own
  int32_t laurel_rank = 0;       ///< ModelConfig::laurel_rank; then there are four residual streams
  int32_t cut_layers = 0;        ///< the first layers, whose gates are cut (LayerConfig::gate_cut)
  int32_t conv_size = 0;         ///< of the short convolutions of layers that do not attend
  uint64_t attending =
      0;  ///< where others are recurrent but not by a period: a bit for each layer that attends
  DeltaNetShape delta_net = {};  ///< of the delta nets, or of Mamba-2
  LatentAttention latent = {};   ///< then Shape::head_size is the size of a cache row
  Indexer indexer = {};
};

/// The shapes of published models, and seven of our own: llama-272m, the speed reference of a CPU; tiny; tiny-moe; tiny-latent, with
/// attention of DeepSeek's sizes; tiny-sparse, the same with an indexer; tiny-wide, with heads of Gemma 4's sizes; and tiny-hybrid, with three gated delta nets in
/// its four layers and heads as large as Qwen3-Next's.
struct Shape {
  std::string_view name;
  std::string_view architecture;
  int32_t vocab, context, hidden, layers, heads, kv_heads, head_size, ffn;
  float rope_base;
  float norm_eps;
  float llama3_factor;  ///< 0: no llama3 rotary scaling
  bool tied;
  int32_t experts = 0, experts_used = 0;  ///< 0: dense; else ffn is an expert's
  ShapeOptions options = {};

  constexpr Shape with(const ShapeOptions& others) const {
    Shape shape = *this;
    shape.options = others;
    return shape;
  }
};

/// The types of the matrices: one for all, or a mix like llama.cpp's *_K_M files, with more bits where errors cost more.
struct TypeMix {
  std::string_view name;
  DType base;
  DType more_bits;  ///< output, and every other or so of attn_v and ffn_down
};

/// The model to make.
struct Spec {
  Shape shape;
  TypeMix mix;
};
/// Parses "synthetic:NAME[:TYPE]", with or without the prefix. Throws Error naming an unknown model or type and the known ones.
Spec parse_spec(std::string_view spec);

ModelConfig config_of(const Shape& shape, std::string_view spec);

/// The type of a matrix with rows of `cols` elements: `dtype`, or llama.cpp's substitute if the rows are not whole blocks of it.
DType type_for_columns(DType dtype, int64_t cols);

}  // namespace minfer::synthetic
