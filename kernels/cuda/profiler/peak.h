#pragma once

#include "kernels/dtype.h"

namespace minfer {

/// The highest rates that a GPU reaches.
struct GpuPeak {
  double read_gbps = 0.0;   ///< streaming reads of its memory, 10^9 bytes/s
  double gflops = 0.0;      ///< dense products with f32 sums, 10^9 operations/s (a multiply-add is two)
  double fp8_gflops = 0.0;  ///< likewise for e4m3 by e4m3; 0: not measured
  double vector_gflops =
      0.0;  ///< likewise for f32 by f32 without the tensor cores; 0: not measured, since `gflops` is this
};

/// Measures the first GPU, in under two seconds: reads of 8 GiB or of the free memory if that is less, and on random data cuBLASLt's
/// fastest product of 8192 x 8192 matrices of `type` (bf16), and of 4096 x 4096 in full f32. An engine may already hold nearly all
/// of the memory: 512 MiB are enough, but with less than 1 GiB the bandwidth comes out a few per cent low. `fp8`: also products of
/// e4m3, which the GPU must have (has_fp8_tensor_cores()). Throws Error if less than 512 MiB are free, or there is no usable GPU.
GpuPeak measure_gpu_peak(DType type, bool fp8 = false);

}  // namespace minfer
