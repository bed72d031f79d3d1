#pragma once

/// What a feed-forward layer does between its products, on sums in f32.
namespace minfer::cuda {

/// silu(gate) * up with silu(z) = z / (1 + e^-z) (Shazeer 2020, "GLU variants improve transformer").
/// kExact: with an exponential to 2 ulp and a rounded quotient, for activations in f32. Else with the hardware's, whose error (some
/// 2^-20 of e^10) is far below what the rounding to bf16 leaves; a rounded quotient has a branch, behind which each would wait for the one before.
template <bool kExact>
struct SwiGlu {
  __device__ __forceinline__ float operator()(float gate, float up) const {
    if constexpr (kExact) return gate / (1.0f + expf(-gate)) * up;
    return __fdividef(gate, 1.0f + __expf(-gate)) * up;
  }
};

}  // namespace minfer::cuda
