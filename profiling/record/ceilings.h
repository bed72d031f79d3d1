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

/// True if the op multiplies by weights.
inline bool is_product(OpKind kind) {
  return kind == OpKind::linear || kind == OpKind::gate_up_swiglu || kind == OpKind::moe_gate_up_swiglu ||
         kind == OpKind::moe_down || kind == OpKind::head_linear;
}

/// The shares of an op, counted in layers, that do not compute on the units that multiply activations.
struct UnitShares {
  double fp8 = 0.0;      ///< FP8 tensor cores
  double vectors = 0.0;  ///< f32, beside the tensor cores
};
UnitShares units_of(const OpInfo& op);

/// The measured limits of a device. 0: not known; then there is no roofline.
struct Ceilings {
  double read_gbps = 0.0;  ///< sequential reads from the device's memory, 10^9 bytes/s, all threads together
  /// 10^9 operations/s (a multiply-add is two). CPU: f32 multiply-adds in registers, all threads together.
  /// GPU: dense products with f32 sums, in the type of the activations (bf16 or f32).
  double gflops = 0.0;
  /// The same for e4m3 by e4m3 products on FP8 tensor cores; 0: not known, or the device has none.
  double fp8_gflops = 0.0;
  /// GPU with bf16 activations: f32 arithmetic outside the tensor cores, which does everything but products. 0: not known.
  double vector_gflops = 0.0;
  /// CPU units that multiply types narrower than f32. No op of this build uses them. 0: not known, or the CPU has none.
  double bf16_gflops = 0.0;
  double int8_gflops = 0.0;
  int32_t runs = 0;             ///< number of measurements; these are the best of them; 0: not known
  int32_t disturbed_runs = 0;   ///< further measurements, while others used the cores
  int64_t measured_unix_s = 0;  ///< when the last of them was; 0: not known

  int32_t tries() const { return runs + disturbed_runs; }
  bool known() const { return read_gbps > 0.0 && gflops > 0.0; }
  /// The arithmetic ceiling of an op on these units.
  double gflops_of(const UnitShares& units) const;
  /// The least time in which work can move `bytes` and compute `flops` (the roofline of Williams et al. 2009); 0 if unknown.
  double floor_us(int64_t bytes, int64_t flops, const UnitShares& units) const;
  /// True if the arithmetic takes longer than the memory traffic. False if unknown.
  bool compute_bound(int64_t bytes, int64_t flops, const UnitShares& units) const;
};

/// The ceilings that only some devices or builds have; the others are always known. The names are the ones in files.
using UnitCeiling = std::pair<const char*, double Ceilings::*>;
inline constexpr std::array kUnitCeilings{
    UnitCeiling{"fp8_gflops", &Ceilings::fp8_gflops}, UnitCeiling{"vector_gflops", &Ceilings::vector_gflops},
    UnitCeiling{"bf16_gflops", &Ceilings::bf16_gflops}, UnitCeiling{"int8_gflops", &Ceilings::int8_gflops}};

/// Measures this machine with `threads` threads (>= 1), in under two seconds. Reads a buffer of up to 1 GiB (smaller
/// if less memory is free), so that caches hold little of it. Sets disturbed_runs if others used the cores meanwhile.
Ceilings measure_ceilings(int32_t threads);

/// The file that keeps measured ceilings: $XDG_CACHE_HOME/minfer/ceilings.json, else
/// ~/.cache/minfer/ceilings.json; empty if neither variable is set.
std::filesystem::path ceilings_cache_path();

/// Returns the ceilings from the cache file if that has the best of kEnoughRuns under `key`. Otherwise also calls `measure` and adds its
/// result to the file. So a measurement on a busy machine does not stay the limit for ever. A measurement counts towards kEnoughRuns
/// only if nobody else used the cores meanwhile. It stops at kMostRuns in all, since some machines are never idle.
/// It does without a cache that it cannot read or write. With MINFER_CEILINGS=skip in the
/// environment: unknown, nothing is read or measured.
inline constexpr int32_t kEnoughRuns = 3, kMostRuns = 12;
Ceilings load_or_measure_ceilings(const std::string& key, const std::function<Ceilings()>& measure,
                                  const std::filesystem::path& cache_path = ceilings_cache_path());

/// Makes the next program that asks for them measure the ceilings under `key` again, if the file has them. Called when an op beat them.
void measure_ceilings_again(const std::string& key,
                            const std::filesystem::path& cache_path = ceilings_cache_path());

/// The cache file's key for the device of `backend`: a processor and its number of threads, or a GPU and its driver. The key also has
/// this version of the program.
std::string ceilings_key(const BackendInfo& backend, std::string_view version);

/// The ceilings of the device that `backend` runs on, from the cache or measured. A GPU is measured with the
/// memory that is free; if that is too little, the ceilings are unknown.
Ceilings device_ceilings(const BackendInfo& backend, std::string_view version,
                         const std::filesystem::path& cache_path = ceilings_cache_path());

}  // namespace minfer
