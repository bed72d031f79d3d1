#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/tensor_view.h"

/// How weights lie in device memory.
namespace minfer::cuda {

/// The type in which a weight of a GGUF type is kept: the same, or for rare types the one it is converted to.
DType device_dtype(DType dtype);
/// Bytes of a tensor in its device layout, a multiple of 256.
size_t device_bytes(const HostTensor& tensor);
/// Rows of the tensor (all its matrices, one after the other) that a call of store_rows() may begin and end
/// at: multiples of it, and the end of a matrix.
int64_t row_granularity(DType dtype);
/// Puts rows [first_row, first_row + num_rows) of a tensor into its device layout. `raw`: these rows as the
/// file has them, device memory. `data`: the tensor's device_bytes(). Asynchronous on `stream`.
void store_rows(cudaStream_t stream, const HostTensor& tensor, int64_t first_row, int64_t num_rows,
                const void* raw, void* data);

}  // namespace minfer::cuda
