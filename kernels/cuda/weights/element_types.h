#pragma once

#include <string_view>
#include <type_traits>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/cuda/weights/weight_types.h"

/// Maps the types of activations and of a KV cache, known when a kernel is launched, to the kernel that was compiled for them.
namespace minfer::cuda {

/// An element of f32, f16, bf16 or f8_e4m3.
template <DType type>
using ElementOf = std::conditional_t<
    type == DType::f32, float,
    std::conditional_t<type == DType::f16, __half,
                       std::conditional_t<type == DType::bf16, __nv_bfloat16, __nv_fp8_e4m3>>>;

/// Types of a KV cache: those that all its writers take, and those with attention on tensor cores.
using CacheTypes = DTypes<DType::f32, DType::f16, DType::bf16, DType::f8_e4m3>;
using NarrowCacheTypes = DTypes<DType::bf16, DType::f16, DType::f8_e4m3>;

/// A tensor's type, and its name in errors.
struct NamedType {
  std::string_view name;
  DType type;
};

/// Calls launch.operator()<X, Kv>() with the element types of activations, f32 or bf16, and of a cache of CacheTypes. Else throws Error.
template <class F>
void for_elements(const NamedType& x, const NamedType& cache, const F& launch) {
  for_type(DTypes<DType::f32, DType::bf16>{}, x.name, x.type, [&](auto x_type) {
    using X = ElementOf<x_type>;
    for_type(CacheTypes{}, cache.name, cache.type,
             [&](auto cache_type) { launch.template operator()<X, ElementOf<cache_type>>(); });
  });
}

}  // namespace minfer::cuda
