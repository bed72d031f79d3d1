#pragma once

#include <cstdint>
#include <string_view>

#include "models/decoder/config.h"

/// The models that there are random weights for, and the types that these may have. Behind make_synthetic_model().
namespace minfer::synthetic {

/// What families beyond Llama's have.
struct ShapeOptions {
  int32_t window = 0;       ///< of the layers that the family gives one
  int32_t rotary_size = 0;  ///< 0: the head size
  float attention_cap = 0.0f;
  float logit_cap = 0.0f;
  float residual_scale = 1.0f;
};

/// Shapes of published models, and three of our own: llama-272m, the speed reference
/// of a CPU, tiny, and tiny-moe.
///
/// Of gpt-oss-20b there are the sizes alone: a plain decoder, all of whose layers attend to the whole context; no attention sinks, no
/// windows, no biases, SwiGLU as elsewhere.
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

/// Types of the matrices: one of all, or a mix as llama.cpp's *_K_M files have it, with more bits where
/// errors cost more.
struct TypeMix {
  std::string_view name;
  DType base;
  DType more_bits;  ///< output, and every other or so of attn_v and ffn_down
};

/// What is made.
struct Spec {
  Shape shape;
  TypeMix mix;
};
/// Of "synthetic:NAME[:TYPE]", or without the prefix. Throws Error naming an unknown model or type and the known ones.
Spec parse_spec(std::string_view spec);

ModelConfig config_of(const Shape& shape, std::string_view spec);

/// The type of a matrix with rows of `cols` elements: `dtype`, or what llama.cpp takes instead where they are not whole blocks of it.
DType type_for_columns(DType dtype, int64_t cols);

}  // namespace minfer::synthetic
