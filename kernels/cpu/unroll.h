#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cpu/lanes.h"

/// On kernels that must become one loop body: sums in arrays stay in registers only if every index is a
/// constant and nothing is called.
#define MINFER_ALWAYS_INLINE __attribute__((always_inline))

namespace minfer::cpu {
inline namespace MINFER_ISA {

/// body(i) for i = 0 ... count - 1, unrolled; i converts to a constant expression.
template <int count, class Body>
MINFER_ALWAYS_INLINE inline void unroll(Body&& body) {
  [&]<int... i>(std::integer_sequence<int, i...>) MINFER_ALWAYS_INLINE {
    (body(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, count>());
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
