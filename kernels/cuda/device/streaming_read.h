#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace minfer::cuda {

/// Reads `bytes` of device memory once and keeps nothing: the yardstick for reading weights. `data`: 16-byte aligned.
/// `bytes`: a multiple of 16, at least 64 KiB, else throws Error. `sink`: 4 bytes of device memory. Asynchronous on `stream`.
void streaming_read(cudaStream_t stream, const void* data, size_t bytes, int32_t num_sms, uint32_t* sink);

}  // namespace minfer::cuda
