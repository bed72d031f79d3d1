#pragma once

#include <cstdint>
#include <string_view>

namespace minfer::cpu {

/// Instruction sets that kernels are compiled for, ascending. All give bitwise equal results (see lanes.h).
enum class Isa : uint8_t {
  portable,  ///< any x86-64; slow, as fused multiply-adds run in software if the processor has none
  avx2,      ///< AVX2, FMA, F16C
  avx512,    ///< AVX-512 F, BW, DQ, VL
};

std::string_view name(Isa isa);

/// The largest set this processor runs.
Isa detected_isa();

/// The set that the environment variable MINFER_CPU_ISA names (portable, avx2, avx512), else
/// detected_isa(). Read at every call, so that a test can make backends of different sets. Throws Error
/// for an unknown name, or for a set that the processor lacks.
Isa selected_isa();

/// The table of an instruction set.
template <class Table>
const Table& choose(Isa isa, const Table& portable, const Table& avx2, const Table& avx512) {
  return isa == Isa::portable ? portable : isa == Isa::avx2 ? avx2 : avx512;
}

}  // namespace minfer::cpu
