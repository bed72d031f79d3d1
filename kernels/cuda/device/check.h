#pragma once

#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include "kernels/base/error_types.h"
#include "kernels/dtype.h"

/// Errors of the CUDA runtime as exceptions. Usable from .cu files: no formatting library in this header.
namespace minfer::cuda {

/// Throws DeviceError with CUDA's name and text for `status`, unless it is cudaSuccess. `what`: names the call
/// that returned it, e.g. "launch of rms_norm".
void check(cudaError_t status, std::string_view what);
/// Throws Error: a launcher was called with something it does not support.
[[noreturn]] void unsupported(std::string_view op, std::string_view expected, std::string_view found);
/// Throws Error unless `found == expected`.
void require_equal(std::string_view what, int64_t expected, int64_t found);

/// Throws Error unless `tensor`, a Tensor or a Weight, is [rows, cols] f32.
template <class T>
void check_f32(const std::string& what, const T& tensor, int64_t rows, int64_t cols) {
  if (tensor.dtype != DType::f32) unsupported(what, "f32", name(tensor.dtype));
  require_equal(what + ": rows", rows, tensor.rows);
  require_equal(what + ": columns", cols, tensor.cols);
}

}  // namespace minfer::cuda
