#include "kernels/cpu/lanes/peak_impl.h"

namespace minfer::cpu {
namespace {

struct Register {
  static constexpr int kFloats = 16;
  __m512 v;

  static Register set(float x) { return {_mm512_set1_ps(x)}; }
  static Register fma(Register a, Register b, Register c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static Register load(const char* p) { return {_mm512_load_ps(p)}; }
  static Register mix(Register a, Register b) { return {_mm512_xor_ps(a.v, b.v)}; }
  float first() const { return _mm512_cvtss_f32(v); }
};

}  // namespace

PeakLoops peak_loops_avx512() {
  return loops_of<Register>();
}

}  // namespace minfer::cpu
