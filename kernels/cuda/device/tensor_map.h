#pragma once

#include <cstdint>
#include <span>

#include <cuda.h>

/// Tensors in device memory as bulk tensor copies (TMA) see them: one instruction copies a box of a tensor into shared memory.
namespace minfer::cuda {

struct TensorDimension {
  int64_t size = 0;          ///< elements
  int64_t stride_bytes = 0;  ///< from one index to the next; for the first dimension, the element's size
  int32_t box = 0;           ///< elements of a box, at most 256
};

/// The layout of boxes in shared memory.
enum class BoxLayout : uint8_t {
  swizzled,     ///< rows of 128 bytes, swizzled by groups of eight
  swizzled_64,  ///< rows of 64 bytes, swizzled by groups of eight that lie in 512 bytes
  swizzled_32,  ///< rows of 32 bytes, swizzled by groups of eight that lie in 256 bytes
  plain,        ///< any width, one element after the other
};

/// A map of elements of 1, 2, 4 or 8 bytes, at most five dimensions, innermost first. Elements outside of the tensor come as zeros.
/// `data`, all other strides and a box's rows are multiples of 16 bytes. Throws Error if the driver refuses it or has no tensor maps.
CUtensorMap tensor_map(const void* data, std::span<const TensorDimension> dimensions,
                       BoxLayout layout = BoxLayout::swizzled);

}  // namespace minfer::cuda
