#pragma once

#include <cstdint>

namespace minfer {

/// What a gated feed-forward layer makes of a row of gate, g, and one of up, u (biases included).
enum class GateActivation : uint8_t {
  silu,  ///< silu(g) u with silu(g) = g / (1 + e^-g): SwiGLU (Shazeer 2020, "GLU variants improve transformer"); Llama, Qwen
  gelu_tanh,  ///< gelu(g) u, by GELU's approximation g / (1 + e^(-2 sqrt(2/pi) (g + 0.044715 g^3))), which is the one with tanh
              ///< (Hendrycks & Gimpel 2016, "Gaussian error linear units"); Gemma
  gelu,       ///< gelu(g) u with gelu(g) = g (1 + erf(g / sqrt(2))) / 2
  clamped_swiglu,  ///< g' / (1 + e^(-1.702 g')) (u' + 1) with g' = min(g, 7), u' = u within [-7, 7]; gpt-oss (openai/gpt-oss, torch/model.py)
};

inline constexpr float kSwiGluLimit = 7.0f;
inline constexpr float kSwiGluSlope = 1.702f;
inline constexpr float kGeluTanhLinear = 1.5957691216f;  ///< 2 sqrt(2 / pi)
inline constexpr float kGeluTanhCubic = 0.044715f * kGeluTanhLinear;

}  // namespace minfer
