#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "kernels/backend.h"
#include "kernels/op.h"

namespace minfer {

/// Multiplies with weights.
inline bool is_product(OpKind kind) {
  return kind == OpKind::linear || kind == OpKind::gate_up_swiglu || kind == OpKind::moe_gate_up_swiglu ||
         kind == OpKind::moe_down || kind == OpKind::head_linear;
}

/// Shares of an op, by its layers, whose arithmetic runs on other units than products of activations do.
struct UnitShares {
  double fp8 = 0.0;      ///< FP8 tensor cores
  double vectors = 0.0;  ///< f32, beside the tensor cores
};
UnitShares units_of(const OpInfo& op);

/// What a device can do at most, as measured on it. 0: not known, and then no roofline is drawn.
struct Ceilings {
  double read_gbps = 0.0;  ///< sequential reads from the device's memory, 10^9 bytes/s, all threads together
  /// 10^9 operations/s (a multiply-add is two). CPU: f32 multiply-adds in registers, all threads together.
  /// GPU: dense products with f32 sums of the type that activations have: bf16, or f32.
  double gflops = 0.0;
  /// Likewise of e4m3 by e4m3 on FP8 tensor cores; 0: not known, or there are none.
  double fp8_gflops = 0.0;
  /// Of a GPU whose activations are bf16: in f32, beside the tensor cores, which is what does all that is no product. 0: not known.
  double vector_gflops = 0.0;
  /// Of units of a CPU that multiply narrower types than f32. No op of this build uses them. 0: not known, or there are none.
  double bf16_gflops = 0.0;
  double int8_gflops = 0.0;
  int32_t runs = 0;             ///< measurements of which these are the best; 0: not known
  int32_t disturbed_runs = 0;   ///< and more of them, while others took the cores
  int64_t measured_unix_s = 0;  ///< when the last of them was; 0: not known

  int32_t tries() const { return runs + disturbed_runs; }
  bool known() const { return read_gbps > 0.0 && gflops > 0.0; }
  /// The arithmetic ceiling of an op on these units.
  double gflops_of(const UnitShares& units) const;
  /// Least time of work that moves `bytes` and computes `flops` (the roofline of Williams et al. 2009); 0 if unknown.
  double floor_us(int64_t bytes, int64_t flops, const UnitShares& units) const;
  /// Whether the arithmetic takes longer than the memory traffic. False if unknown.
  bool compute_bound(int64_t bytes, int64_t flops, const UnitShares& units) const;
};

/// Those of a device or of a build that has them; all others are always known. Names are those of files.
using UnitCeiling = std::pair<const char*, double Ceilings::*>;
inline constexpr std::array kUnitCeilings{
    UnitCeiling{"fp8_gflops", &Ceilings::fp8_gflops}, UnitCeiling{"vector_gflops", &Ceilings::vector_gflops},
    UnitCeiling{"bf16_gflops", &Ceilings::bf16_gflops}, UnitCeiling{"int8_gflops", &Ceilings::int8_gflops}};

/// Measures this machine with `threads` threads (>= 1), in under two seconds. Reads a buffer of up to 1 GiB,
/// less where less memory is free, so that caches hold little of it. Says whether others took the cores meanwhile (disturbed_runs).
Ceilings measure_ceilings(int32_t threads);

/// The file that keeps measured ceilings: $XDG_CACHE_HOME/minfer/ceilings.json, else
/// ~/.cache/minfer/ceilings.json; empty if neither variable is set.
std::filesystem::path ceilings_cache_path();

/// Ceilings from the cache file if it has the best of kEnoughRuns under `key`, else what `measure` gives as well, which is added to
/// the file: a measurement while others used the machine is not held for its limit for ever. It counts as one of kEnoughRuns only if
/// the cores were not taken meanwhile; kMostRuns are made in all, since there are machines that are never alone.
/// A cache that cannot be read or written is done without. With MINFER_CEILINGS=skip in the
/// environment: unknown, nothing is read or measured.
inline constexpr int32_t kEnoughRuns = 3, kMostRuns = 12;
Ceilings load_or_measure_ceilings(const std::string& key, const std::function<Ceilings()>& measure,
                                  const std::filesystem::path& cache_path = ceilings_cache_path());

/// Has the next program that asks for them measure the ceilings under `key` once more, if the file has them: an op has beaten them.
void measure_ceilings_again(const std::string& key,
                            const std::filesystem::path& cache_path = ceilings_cache_path());

/// Names the device that `backend` runs on in the cache file: a processor with its threads, a GPU with its driver; with this version of
/// the program in any case.
std::string ceilings_key(const BackendInfo& backend, std::string_view version);

/// Ceilings of the device that `backend` runs on, from the cache or measured. A GPU is measured with the
/// memory that is free; with too little left for that they are unknown.
Ceilings device_ceilings(const BackendInfo& backend, std::string_view version,
                         const std::filesystem::path& cache_path = ceilings_cache_path());

}  // namespace minfer
