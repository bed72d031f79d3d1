#include "tests/support/random_data.h"

#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include "kernels/random.h"

namespace minfer::test {

std::vector<float> normal_values(int64_t count, uint64_t seed, float deviation) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {  // Box-Muller
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform(seed, 2 * i)));
    const double angle = 2.0 * std::numbers::pi * uniform(seed, 2 * i + 1);
    values[static_cast<size_t>(i)] = static_cast<float>(radius * std::cos(angle)) * deviation;
  }
  return values;
}

std::vector<int32_t> permutation(int32_t count, uint64_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int32_t i = count - 1; i > 0; --i) {
    std::swap(order[i], order[static_cast<size_t>(uniform(seed, i) * (i + 1))]);
  }
  return order;
}

}  // namespace minfer::test
