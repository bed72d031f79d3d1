#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lanes/isa.h"

namespace minfer::cpu {

/// Loops that do only the work that a ceiling of the roofline measures. Their results only keep the work alive.
struct PeakLoops {
  /// Reads `bytes` bytes, a multiple of 512, once, in order; `data` 64-byte aligned.
  uint64_t (*read)(const void* data, size_t bytes);
  /// Rounds of independent multiply-adds in registers.
  float (*fma)(int64_t rounds);
  int64_t flops_per_round;
};

extern const PeakLoops kPeakLoopsPortable, kPeakLoopsAvx2, kPeakLoopsAvx512;

/// The loops for an instruction set that this processor has.
inline const PeakLoops& peak_loops(Isa isa) {
  return choose(isa, kPeakLoopsPortable, kPeakLoopsAvx2, kPeakLoopsAvx512);
}

/// Rounds of independent multiply-adds of a narrower type, with sums of 32 bits.
struct NarrowLoop {
  void (*run)(int64_t rounds) = nullptr;  ///< null: this processor, or its system, has no unit for it
  int64_t flops_per_round = 0;
  int64_t rounds = 0;  ///< that take some milliseconds
};
/// A loop over the fastest unit of the machine: AMX (which the system has to grant), VNNI of 512 or 256 bits.
NarrowLoop int8_loop();
/// The same for AMX, AVX512-BF16.
NarrowLoop bf16_loop();

}  // namespace minfer::cpu
