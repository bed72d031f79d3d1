#pragma once

#include <cfloat>
#include <cmath>

#include "kernels/activation.h"

/// The operations of a feed-forward layer between its products, on sums in f32.
namespace minfer::cuda {

/// The smaller of the two. NaN stays NaN, unlike with fminf().
__device__ __forceinline__ float at_most(float value, float most) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(value), "f"(most));
  return result;
}

/// gate * sigmoid(slope) * up. kExact: with an exponential to 2 ulp and a rounded quotient, for activations in
/// f32. Otherwise with the hardware's functions, whose error (some 2^-20 of e^10) is far below the rounding to
/// bf16. A rounded quotient has a branch, behind which each one would wait for the one before.
template <bool kExact>
__device__ __forceinline__ float gated_by(float slope, float gate, float up) {
  if constexpr (kExact) return gate / (1.0f + expf(-slope)) * up;
  return __fdividef(gate, 1.0f + __expf(-slope)) * up;
}

/// GateActivation::silu.
template <bool kExact>
struct SiluGate {
  __device__ __forceinline__ float operator()(float gate, float up) const {
    return gated_by<kExact>(gate, gate, up);
  }
};

/// See GateActivation. All kinds except gelu are gate * sigmoid(slope) without a branch, so that a kernel has one body for them.
template <bool kExact>
class Gate {
 public:
  __device__ __forceinline__ explicit Gate(GateActivation kind)
      : is_gelu_(kind == GateActivation::gelu),
        limit_(kind == GateActivation::clamped_swiglu ? kSwiGluLimit : INFINITY),
        more_up_(kind == GateActivation::clamped_swiglu ? 1.0f : 0.0f),
        linear_(kind == GateActivation::clamped_swiglu ? kSwiGluSlope
                : kind == GateActivation::relu         ? kStep
                : kind == GateActivation::gelu_tanh    ? kGeluTanhLinear
                                                       : 1.0f),
        cubic_(kind == GateActivation::gelu_tanh ? kGeluTanhCubic : 0.0f) {}

  __device__ __forceinline__ float operator()(float gate, float up) const {
    if (is_gelu_) {
      constexpr float kRootHalf = 0.70710678f;
      return 0.5f * gate * (1.0f + erff(kRootHalf * gate)) * up;
    }
    gate = at_most(gate, limit_);
    up = at_most(-at_most(-up, limit_), limit_) + more_up_;
    const float square = fminf(gate * gate, FLT_MAX);  // finite, so that it times a factor of 0 is 0
    return gated_by<kExact>(gate * fmaf(cubic_, square, linear_), gate, up);
  }

 private:
  /// A slope so steep that the sigmoid is 0 or 1 wherever the result is not almost 0.
  static constexpr float kStep = 1e30f;

  bool is_gelu_;
  float limit_, more_up_, linear_, cubic_;
};

/// Calls function(gate) with the function of a kind. If many sums wait for one another, the kind must be known before all of them.
template <class Function>
__device__ __forceinline__ void with_gate(GateActivation kind, const Function& function) {
  if (kind == GateActivation::silu) return function(SiluGate<false>{});
  function(Gate<false>(kind));
}

}  // namespace minfer::cuda
