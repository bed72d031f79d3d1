#pragma once

#include <math.h>

#include "kernels/cpu/lanes/vector_math.h"

// Row-wise loops in Lanes; see LaneKernels for what each does. Lane j of a reduction takes elements j,
// j + 16, ... in order.
namespace minfer::cpu {
inline namespace MINFER_ISA {

inline void rms_norm_row(const float* x, const float* weight, float eps, int64_t size, float* out) {
  Lanes squares = Lanes::set(0.0f);
  for (int64_t i = 0; i < size; i += kLanes) {
    const Lanes v = load_some(x + i, size - i);
    squares = fma(v, v, squares);
  }
  const float mean = reduce_add(squares) / static_cast<float>(size);
  const Lanes scale = Lanes::set(1.0f / sqrtf(mean + eps));
  for (int64_t i = 0; i < size; i += kLanes)
    store_some(load_some(x + i, size - i) * scale * load_some(weight + i, size - i), out + i, size - i);
}

inline void exp_row(const float* x, float shift, float divisor, int64_t size, float* out) {
  const Lanes offset = Lanes::set(shift);
  const Lanes width = Lanes::set(divisor);
  for (int64_t i = 0; i < size; i += kLanes)
    store_some(exp((load_some(x + i, size - i) - offset) / width), out + i, size - i);
}

inline void weight_row(const float* x, float largest, float temperature, int64_t size, float* out) {
  const float least = temperature > kLeastTemperature ? temperature : kLeastTemperature;
  const float scale = kLog2E / (least < kMostTemperature ? least : kMostTemperature);
  const Lanes scales = Lanes::set(scale);
  const Lanes lowest = Lanes::set(kLowestPower / scale);
  const Lanes shift = Lanes::set(largest);
  for (int64_t i = 0; i < size; i += kLanes)
    store_some(power_of_two(max(load_some(x + i, size - i) - shift, lowest), scales), out + i, size - i);
}

inline float max_row(const float* x, int64_t size) {
  const int64_t whole = size / kLanes * kLanes;
  Lanes largest = Lanes::set(-__builtin_inff());
  for (int64_t i = 0; i < whole; i += kLanes)
    largest = max(Lanes::load(x + i), largest);
  float result = reduce_max(largest);
  for (int64_t i = whole; i < size; ++i)
    result = x[i] > result ? x[i] : result;
  return result;
}

}  // namespace MINFER_ISA
}  // namespace minfer::cpu
