#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/lanes/lanes.h"
#include "kernels/cpu/lanes/peak.h"

// The loops of peak.h, written once over a register type V:
//   static V set(float); static V fma(V a, V b, V c) = a * b + c; static V load(const char*);
//   static V mix(V a, V b), any cheap operation on both; float first() const; constexpr int kFloats.

namespace minfer::cpu {
inline namespace MINFER_ISA {

// Twelve chains: enough for two units of latency four or five, and they fit into sixteen registers.
inline constexpr size_t kChains = 12;

template <class V>
float run_fma(int64_t rounds) {
  std::array<V, kChains> sums;
  for (size_t i = 0; i < kChains; ++i)
    sums[i] = V::set(static_cast<float>(i));
  const V factor = V::set(0.999f);
  const V term = V::set(0.001f);
  for (int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (size_t i = 0; i < kChains; ++i)
      sums[i] = V::fma(sums[i], factor, term);
  }
  float total = 0.0f;
  for (const V& sum : sums)
    total += sum.first();
  return total;
}

template <class V>
uint64_t run_read(const void* data, size_t bytes) {
  const char* p = static_cast<const char*>(data);
  const char* end = p + bytes;
  std::array<V, 8> sums;
  for (V& sum : sums)
    sum = V::set(0.0f);
  for (; p < end; p += sums.size() * sizeof(V)) {
#pragma GCC unroll 8
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] = V::mix(sums[i], V::load(p + i * sizeof(V)));
  }
  for (size_t i = 1; i < sums.size(); ++i)
    sums[0] = V::mix(sums[0], sums[i]);
  return static_cast<uint64_t>(sums[0].first() != 0.0f);
}

template <class V>
PeakLoops loops_of() {
  return {&run_read<V>, &run_fma<V>, static_cast<int64_t>(2 * kChains * V::kFloats)};
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
