#pragma once

#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/peak.h"

// The loops of peak.h over the registers of an instruction set. Compiled so that a product and a sum are one multiply-add where there is
// one; SSE2, which every x86-64 has, takes two instructions.
namespace minfer::cpu {
inline namespace MINFER_ISA {

#if defined(__AVX512F__)
inline constexpr int kRegisterBytes = 64;
#elif defined(__AVX2__)
inline constexpr int kRegisterBytes = 32;
#else
inline constexpr int kRegisterBytes = 16;
#endif
using Floats = float __attribute__((vector_size(kRegisterBytes)));
using Words = uint64_t __attribute__((vector_size(kRegisterBytes)));

// Twelve chains: enough for two units of latency four or five, and they fit into sixteen registers.
inline constexpr int kChains = 12;

inline float multiply_add(int64_t rounds) {
  Floats sums[kChains];
  for (int i = 0; i < kChains; ++i)
    sums[i] = Floats{} +
              static_cast<float>(i + 2);  // not 1, which stays 1: the compiler would leave that chain out
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (Floats& sum : sums)
      sum = sum * 0.999f + 0.001f;
  }
  float total = 0.0f;
  for (const Floats& sum : sums)
    total += sum[0];
  return total;
}

inline uint64_t read(const void* data, size_t bytes) {
  const auto* p = static_cast<const Words*>(data);
  const auto* end = p + bytes / sizeof(Words);
  Words sums[8] = {};
  for (; p < end; p += 8) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i)
      sums[i] ^= p[i];
  }
  for (int i = 1; i < 8; ++i)
    sums[0] ^= sums[i];
  return sums[0][0] != 0 ? 1 : 0;
}

constexpr PeakLoops make_peak_loops() {
  return {read, multiply_add, int64_t{2} * kChains * kRegisterBytes / static_cast<int64_t>(sizeof(float))};
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
