#pragma once

#include <cstdint>
#include <numbers>

#include "kernels/op_args.h"

/// Options of AttentionArgs beside full causal attention, as the kernels take them. The tensor-core kernels are compiled
/// without options and with all of them; the parameters' type chooses. So the kernel without options pays nothing for them.
namespace minfer::cuda {

struct AttentionOptions {
  AttentionWindow window = {};
  float cap = 0.0f;              ///< 0: none
  float cap_exponent = 0.0f;     ///< 2 log2(e) scale / cap, the factor of a product q k
  const float* sinks = nullptr;  ///< [heads] or null

#ifdef __CUDACC__

  /// The first position that a token at `position` sees.
  __device__ __forceinline__ int32_t first_seen(int32_t position) const {
    return window.first_seen(position);
  }

  /// cap tanh(scale x / cap) = cap - 2 cap / (1 + 2^(cap_exponent x)) for a product x, off by some 2e-7 of the cap.
  __device__ __forceinline__ float capped(float product) const {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(product * cap_exponent));
    return cap - __fdividef(2.0f * cap, 1.0f + power);
  }

  /// The last factor of a row's weighted values: 1 / sum, with the sink's share in the sum. `max_log2`: the
  /// largest score times log2(e), to which the weights are relative. A row without keys gives 0.
  __device__ __forceinline__ float end_factor(float max_log2, float sum, int32_t head) const {
    if (sum == 0.0f) return 0.0f;
    if (sinks == nullptr) return 1.0f / sum;
    const float sink_log2 = sinks[head] * std::numbers::log2e_v<float>;
    const float base = fmaxf(max_log2, sink_log2);
    const float factor = exp2f(max_log2 - base);
    return factor / (sum * factor + exp2f(sink_log2 - base));
  }

#endif  // __CUDACC__
};

/// True if kernels with these parameters take options.
template <class Params>
inline constexpr bool kHasOptions = requires(const Params& p) {
  p.options;
};

inline bool has_options(const AttentionArgs& args) {
  return args.window || args.logit_cap > 0.0f || args.sinks;
}

inline AttentionOptions attention_options(const AttentionArgs& args) {
  AttentionOptions options{
      .window = args.window, .cap = args.logit_cap, .sinks = static_cast<const float*>(args.sinks.data)};
  if (args.logit_cap > 0.0f)
    options.cap_exponent = 2.0f * std::numbers::log2e_v<float> * args.scale / args.logit_cap;
  return options;
}

/// The factor that turns scores into exponents of 2 in the tensor-core kernels. Capped scores already have their scale.
inline float scale_log2(const AttentionArgs& args) {
  return (args.logit_cap > 0.0f ? 1.0f : args.scale) * std::numbers::log2e_v<float>;
}

}  // namespace minfer::cuda
