#pragma once

#include <cstdint>
#include <string_view>

namespace minfer::cpu {

/// Instruction sets that kernels are compiled for, ascending. All give bitwise equal results (see lanes.h).
enum class Isa : uint8_t {
  portable,  ///< any x86-64; fused multiply-adds in software where the processor has none, so slow
  avx2,      ///< AVX2, FMA, F16C
  avx512,    ///< AVX-512 F, BW, DQ, VL
};

std::string_view name(Isa isa);

/// The largest set this processor runs.
Isa detected_isa();

/// detected_isa(), or what the environment variable MINFER_CPU_ISA (portable, avx2, avx512) names. Read at
/// every call, so that a test can make backends of different sets. Throws Error for an unknown name or one
/// that the processor lacks.
Isa selected_isa();

}  // namespace minfer::cpu
