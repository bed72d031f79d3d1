#pragma once

#include <cstdint>

namespace minfer::cuda {

/// The facts of a GPU that the choice of kernels and their modelled times use.
struct DeviceFacts {
  int32_t sms = 0;
  bool has_wgmma = false;    ///< Hopper's tensor cores, and code for them in the build
  int64_t shared_bytes = 0;  ///< the most that a block may have
  int64_t strip_shared_bytes =
      0;  ///< of a block, with which the build compiled the kernels of quantised weights times few tokens
  // The most that kernels reach, for modelled times alone.
  double bytes_per_us = 0.0;
  double bf16_flops_per_us = 0.0;
  double fp8_flops_per_us = 0.0;
};

/// As measured (tests/benchmarks/results/products-2026-11-24.jsonl: reads 4,550 GB/s, 833 TFLOP/s of bf16, 1,590 of FP8).
inline constexpr DeviceFacts kH200{.sms = 132,
                                   .has_wgmma = true,
                                   .shared_bytes = 227 << 10,
                                   .strip_shared_bytes = 227 << 10,
                                   .bytes_per_us = 4.55e6,
                                   .bf16_flops_per_us = 8.33e8,
                                   .fp8_flops_per_us = 1.59e9};

}  // namespace minfer::cuda
