#include "kernels/cpu/lanes/peak.h"

#include <emmintrin.h>

#include "kernels/cpu/lanes/peak_impl.h"

namespace minfer::cpu {
namespace {

// SSE2, which every x86-64 has; a multiply-add is two instructions.
struct Register {
  static constexpr int kFloats = 4;
  __m128 v;

  static Register set(float x) { return {_mm_set1_ps(x)}; }
  static Register fma(Register a, Register b, Register c) { return {_mm_add_ps(_mm_mul_ps(a.v, b.v), c.v)}; }
  static Register load(const char* p) { return {_mm_load_ps(reinterpret_cast<const float*>(p))}; }
  static Register mix(Register a, Register b) { return {_mm_xor_ps(a.v, b.v)}; }
  float first() const { return _mm_cvtss_f32(v); }
};

}  // namespace

PeakLoops peak_loops(Isa isa) {
  if (isa == Isa::portable) return loops_of<Register>();
  return isa == Isa::avx2 ? peak_loops_avx2() : peak_loops_avx512();
}

}  // namespace minfer::cpu
