#pragma once

#include <cstdint>
#include <span>

#include <cuda.h>

/// Tensors in device memory as bulk tensor copies (TMA) see them: pieces of them, boxes, come into shared memory by one instruction.
namespace minfer::cuda {

struct TensorDimension {
  int64_t size = 0;          ///< elements
  int64_t stride_bytes = 0;  ///< from one to the next; of the first dimension it is the element's size
  int32_t box = 0;           ///< elements of a box, at most 256
};

/// A map of bf16 elements, at most five dimensions, the innermost first. Boxes are 64 elements wide and lie in shared memory in rows of
/// 128 bytes, swizzled by groups of eight rows; what lies outside of the tensor comes as zeros. `data` and all strides are multiples of
/// 16 bytes. Throws Error if the driver takes it for wrong, or has no tensor maps.
CUtensorMap tensor_map(const void* data, std::span<const TensorDimension> dimensions);

}  // namespace minfer::cuda
