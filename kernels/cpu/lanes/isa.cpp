#include "kernels/cpu/lanes/isa.h"

#include <array>
#include <cstdlib>

#include "kernels/base/error.h"

namespace minfer::cpu {
namespace {

constexpr std::array<Isa, 3> kAll{Isa::portable, Isa::avx2, Isa::avx512};

/// Includes F16C, which every processor with AVX2 has; clang 14 cannot ask for F16C by name.
bool supports_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

bool supports_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

std::string_view name(Isa isa) {
  static constexpr std::array<std::string_view, kAll.size()> kNames{"portable", "avx2", "avx512"};
  return kNames[static_cast<size_t>(isa)];
}

Isa detected_isa() {
  if (!supports_avx2()) return Isa::portable;
  return supports_avx512() ? Isa::avx512 : Isa::avx2;
}

Isa selected_isa() {
  const char* wanted = std::getenv("MINFER_CPU_ISA");
  if (wanted == nullptr || *wanted == '\0') return detected_isa();
  for (const Isa isa : kAll) {
    if (name(isa) != wanted) continue;
    if (isa > detected_isa()) {
      fail("MINFER_CPU_ISA={}: this processor runs {} at most", wanted, name(detected_isa()));
    }
    return isa;
  }
  fail("MINFER_CPU_ISA={}: expected portable, avx2 or avx512", wanted);
}

}  // namespace minfer::cpu
