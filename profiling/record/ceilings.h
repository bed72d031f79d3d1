#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "kernels/backend.h"

namespace minfer {

/// What a device can do at most, as measured on it. 0: not known, and then no roofline is drawn.
struct Ceilings {
  double read_gbps = 0.0;  ///< sequential reads from the device's memory, 10^9 bytes/s, all threads together
  /// 10^9 operations/s (a multiply-add is two). CPU: f32 multiply-adds in registers, all threads together.
  /// GPU: dense products with f32 sums of the type that activations have: bf16, or f32.
  double gflops = 0.0;
  /// Likewise of e4m3 by e4m3 on FP8 tensor cores; 0: not known, there are none, or no op uses them.
  double fp8_gflops = 0.0;
  int32_t runs = 0;             ///< measurements of which these are the best; 0: not known
  int64_t measured_unix_s = 0;  ///< when the last of them was; 0: not known

  bool known() const { return read_gbps > 0.0 && gflops > 0.0; }
  /// The arithmetic ceiling of ops of which this part is on FP8 tensor cores (OpInfo::fp8_products: 0 or 1 of a single op).
  double gflops_of(double fp8_share) const;
  /// Least time of work that moves `bytes` and computes `flops` (the roofline of Williams et al. 2009); 0 if
  /// unknown.
  double floor_us(int64_t bytes, int64_t flops, double fp8_share) const;
  /// Whether the arithmetic takes longer than the memory traffic. False if unknown.
  bool compute_bound(int64_t bytes, int64_t flops, double fp8_share) const;
};

/// Measures this machine with `threads` threads (>= 1), in under two seconds. Reads a buffer of up to 1 GiB,
/// less where less memory is free, so that caches hold little of it.
Ceilings measure_ceilings(int32_t threads);

/// The file that keeps measured ceilings: $XDG_CACHE_HOME/minfer/ceilings.json, else
/// ~/.cache/minfer/ceilings.json; empty if neither variable is set.
std::filesystem::path ceilings_cache_path();

/// Ceilings from the cache file if it has the best of kEnoughRuns under `key`, else what `measure` gives as well, which is added to
/// the file: a measurement while others used the machine is not held for its limit for ever. With `fp8` a file without fp8_gflops gets what `measure` finds of it, and keeps the rest; else fp8_gflops stays 0.
/// A cache that cannot be read or written is done without. With MINFER_CEILINGS=skip in the
/// environment: unknown, nothing is read or measured.
inline constexpr int32_t kEnoughRuns = 3;
Ceilings load_or_measure_ceilings(const std::string& key, bool fp8, const std::function<Ceilings()>& measure,
                                  const std::filesystem::path& cache_path = ceilings_cache_path());

/// Ceilings of the device that `backend` runs on, from the cache or measured: of a processor for its thread
/// count, of a GPU for its driver; for this version of the program in any case. A GPU is measured with the
/// memory that is free; with too little left for that they are unknown. `fp8_products`: there are ops with such, whose ceiling is
/// wanted too, of a GPU that has it.
Ceilings device_ceilings(const BackendInfo& backend, std::string_view version, bool fp8_products,
                         const std::filesystem::path& cache_path = ceilings_cache_path());

}  // namespace minfer
