#include "kernels/cuda/device/tensor_map.h"

#include <array>

#include <cuda_runtime_api.h>

#include "kernels/base/error.h"
#include "kernels/cuda/device/check.h"

namespace minfer::cuda {
namespace {

constexpr size_t kMostDimensions = 5;

/// The driver's function, looked up at run time: the program is not linked with the driver.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  static const auto function = [] {
    void* address = nullptr;
    cudaDriverEntryPointQueryResult result{};
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &address, 12000, cudaEnableDefault,
                                           &result),
          "tensor maps");
    if (result != cudaDriverEntryPointSuccess)
      fail("CUDA's driver has no tensor maps, expected version 12.0 or later");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(address);
  }();
  return function;
}

/// Copies move bits: only the size of an element counts.
CUtensorMapDataType type_of(int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
    case 2:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case 4:
      return CU_TENSOR_MAP_DATA_TYPE_UINT32;
    case 8:
      return CU_TENSOR_MAP_DATA_TYPE_UINT64;
    default:
      fail("tensor map: elements of {} bytes, expected 1, 2, 4 or 8", element_bytes);
  }
}

CUtensorMapSwizzle swizzle_of(BoxLayout layout) {
  switch (layout) {
    case BoxLayout::swizzled:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case BoxLayout::swizzled_64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case BoxLayout::swizzled_32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case BoxLayout::plain:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
  fail("tensor map: layout {} of boxes", static_cast<int>(layout));
}

}  // namespace

CUtensorMap tensor_map(const void* data, std::span<const TensorDimension> dimensions, BoxLayout layout) {
  if (dimensions.size() > kMostDimensions)
    fail("tensor map: {} dimensions, expected at most 5", dimensions.size());
  std::array<cuuint64_t, kMostDimensions> sizes{}, strides{};
  std::array<cuuint32_t, kMostDimensions> boxes{}, steps{};
  for (size_t i = 0; i < dimensions.size(); ++i) {
    sizes[i] = static_cast<cuuint64_t>(dimensions[i].size);
    boxes[i] = static_cast<cuuint32_t>(dimensions[i].box);
    steps[i] = 1;
    if (i > 0) strides[i - 1] = static_cast<cuuint64_t>(dimensions[i].stride_bytes);
  }
  CUtensorMap map;
  const CUresult result = encode_function()(
      &map, type_of(dimensions.front().stride_bytes), static_cast<cuuint32_t>(dimensions.size()),
      const_cast<void*>(data), sizes.data(), strides.data(), boxes.data(), steps.data(),
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle_of(layout), CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) fail("tensor map: the driver's error {}", static_cast<int>(result));
  return map;
}

}  // namespace minfer::cuda
