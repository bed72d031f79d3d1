#pragma once

#include "kernels/dtype.h"

namespace minfer {

/// What a GPU does at most.
struct GpuPeak {
  double read_gbps = 0.0;   ///< streaming reads of its memory, 10^9 bytes/s
  double gflops = 0.0;      ///< dense products with f32 sums, 10^9 operations/s (a multiply-add is two)
  double fp8_gflops = 0.0;  ///< likewise of e4m3 by e4m3; 0: not measured
  double vector_gflops =
      0.0;  ///< likewise of f32 by f32 beside the tensor cores; 0: not measured, `gflops` is that
};

/// Measures the first GPU, in under two seconds: reads of 8 GiB or of what is free, and cuBLASLt's fastest
/// product of 8192 x 8192 matrices of `type` (bf16), and in full f32 of 4096 x 4096, on random data. An engine may hold nearly all of the memory by then: it
/// takes 512 MiB, and with less than 1 GiB the bandwidth comes out a few per cent low. `fp8`: products of e4m3 as well, which a GPU
/// has to have (has_fp8_tensor_cores()). Throws Error if there is less, or no usable GPU.
GpuPeak measure_gpu_peak(DType type, bool fp8 = false);

}  // namespace minfer
