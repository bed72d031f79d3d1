#pragma once

#include <cstdint>

namespace minfer {

/// The function of a row of gate, g, and a row of up, u (biases included), that a gated feed-forward layer computes.
enum class GateActivation : uint8_t {
  silu,  ///< silu(g) u with silu(g) = g / (1 + e^-g): SwiGLU (Shazeer 2020, "GLU variants improve transformer"); Llama, Qwen
  gelu_tanh,  ///< gelu(g) u, by GELU's approximation g / (1 + e^(-2 sqrt(2/pi) (g + 0.044715 g^3))), which is the one with tanh
              ///< (Hendrycks & Gimpel 2016, "Gaussian error linear units"); Gemma
  gelu,       ///< gelu(g) u with gelu(g) = g (1 + erf(g / sqrt(2))) / 2
  clamped_swiglu,  ///< g' / (1 + e^(-1.702 g')) (u' + 1) with g' = min(g, 7), u' = u within [-7, 7]; gpt-oss (openai/gpt-oss, torch/model.py)
  relu,            ///< max(g, 0) u, which is the square of ReLU with g = u (Nemotron-H's experts)
};

/// The function that a feed-forward layer without a gate, or a head, applies to a row or to its logits.
struct Activation {
  enum class Kind : uint8_t {
    gelu_tanh,  ///< gelu(x), as in GateActivation; StarCoder2
    gelu,       ///< likewise
    xielu,  ///< x > 0: p x^2 + b x; else n (e^min(x, eps) - 1 - x) + b x (Huang & Schlag 2024, "Deriving activation functions using
            ///< integration"); Apertus
    soft_cap,      ///< cap tanh(x / cap), but -inf stays; Gemma 2's logits
    relu_squared,  ///< max(x, 0)^2 (So et al. 2021, "Primer"); Nemotron-H
  };
  Kind kind = Kind::gelu;
  float cap = 0.0f;                                                   ///< soft_cap: positive
  float positive = 0.0f, negative = 0.0f, linear = 0.0f, eps = 0.0f;  ///< xielu: p, n, b and eps
};

inline constexpr float kSwiGluLimit = 7.0f;
inline constexpr float kSwiGluSlope = 1.702f;
inline constexpr float kGeluTanhLinear = 1.5957691216f;  ///< 2 sqrt(2 / pi)
inline constexpr float kGeluTanhCubic = 0.044715f * kGeluTanhLinear;

}  // namespace minfer
