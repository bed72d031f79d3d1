#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cpu/lanes/lanes.h"

// For kernels that must become one loop body: sums in arrays stay in registers only if every index is a
// constant and nothing is called. The portable variant keeps its lanes in memory anyway and uses plain loops
// and calls: unrolled, it would take minutes to compile and megabytes of code.
#if defined(__AVX2__)
#define MINFER_ALWAYS_INLINE __attribute__((always_inline))
#else
#define MINFER_ALWAYS_INLINE
#endif

namespace minfer::cpu {
inline namespace MINFER_ISA {

/// body(i) for i = 0 ... count - 1. With vector registers the loop is unrolled, and i converts to a constant expression.
template <int count, class Body>
MINFER_ALWAYS_INLINE inline void unroll(Body&& body) {
#if defined(__AVX2__)
  [&]<int... i>(std::integer_sequence<int, i...>) MINFER_ALWAYS_INLINE {
    (body(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, count>());
#else
  for (int i = 0; i < count; ++i)
    body(i);
#endif
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
