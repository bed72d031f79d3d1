#pragma once

#include "kernels/activation.h"

/// What a feed-forward layer does between its products, on sums in f32.
namespace minfer::cuda {

/// NaN stays NaN, unlike with fminf().
__device__ __forceinline__ float at_most(float value, float most) {
  return value > most ? most : value;
}

/// See GateActivation. All but gelu are gate * sigmoid(slope), so that a kernel has one body for them and the kind is an argument of it.
/// kExact: with an exponential to 2 ulp and a rounded quotient, for activations in f32. Else with the hardware's, whose error (some
/// 2^-20 of e^10) is far below what the rounding to bf16 leaves; a rounded quotient has a branch, behind which each would wait for the
/// one before.
template <bool kExact>
struct Gate {
  GateActivation kind;

  __device__ __forceinline__ float operator()(float gate, float up) const {
    if (kind == GateActivation::gelu) {
      constexpr float kRootHalf = 0.70710678f;
      return 0.5f * gate * (1.0f + erff(kRootHalf * gate)) * up;
    }
    float slope = gate;
    if (kind == GateActivation::gelu_tanh) slope *= fmaf(kGeluTanhCubic, gate * gate, kGeluTanhLinear);
    if (kind == GateActivation::clamped_swiglu) {
      gate = at_most(gate, kSwiGluLimit);
      up = at_most(-at_most(-up, kSwiGluLimit), kSwiGluLimit) + 1.0f;
      slope = kSwiGluSlope * gate;
    }
    if constexpr (kExact) return gate / (1.0f + expf(-slope)) * up;
    return __fdividef(gate, 1.0f + __expf(-slope)) * up;
  }
};

}  // namespace minfer::cuda
