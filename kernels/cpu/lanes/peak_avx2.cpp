#include "kernels/cpu/lanes/peak_impl.h"

namespace minfer::cpu {
namespace {

struct Register {
  static constexpr int kFloats = 8;
  __m256 v;

  static Register set(float x) { return {_mm256_set1_ps(x)}; }
  static Register fma(Register a, Register b, Register c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static Register load(const char* p) { return {_mm256_load_ps(reinterpret_cast<const float*>(p))}; }
  static Register mix(Register a, Register b) { return {_mm256_xor_ps(a.v, b.v)}; }
  float first() const { return _mm256_cvtss_f32(v); }
};

}  // namespace

PeakLoops peak_loops_avx2() {
  return loops_of<Register>();
}

}  // namespace minfer::cpu
