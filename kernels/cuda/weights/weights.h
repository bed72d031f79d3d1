#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/tensor_view.h"

/// The layout of weights in device memory: see weight_layout.h.
namespace minfer::cuda {

/// Within a matrix, a call of store_rows() must begin and end at multiples of this number of rows, or end at
/// the end of the matrix.
int64_t row_granularity(const HostTensor& tensor);
/// Puts rows [first_row, first_row + num_rows) of a tensor (all its matrices, one after the other) into its
/// device layout. `raw`: these rows as in the file, device memory, 16-byte aligned. `data`: the tensor's
/// device_bytes(). Asynchronous on `stream`.
void store_rows(cudaStream_t stream, const HostTensor& tensor, int64_t first_row, int64_t num_rows,
                const void* raw, void* data);

}  // namespace minfer::cuda
