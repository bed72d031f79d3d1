#include "tests/reference/quantise.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "tests/reference/dequantise.h"

namespace minfer::reference {
namespace {

double smallest_bf16_of_at_least(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value) & 0xffff0000u;
  if (std::bit_cast<float>(bits) < value) bits += 0x10000u;
  return std::bit_cast<float>(bits);
}

}  // namespace

double nearest_e4m3(double value) {
  static const std::array<double, 127> numbers = [] {
    std::array<double, 127> all;
    for (size_t code = 0; code < all.size(); ++code)
      all[code] = e4m3(static_cast<uint8_t>(code));
    return all;
  }();
  const double magnitude = std::abs(value);
  size_t best = 0;
  for (size_t code = 1; code < numbers.size(); ++code) {
    const double found = std::abs(magnitude - numbers[code]), before = std::abs(magnitude - numbers[best]);
    if (found < before || (found == before && code % 2 == 0)) best = code;
  }
  return std::copysign(numbers[best], value);
}

Matrix fp8_rows(const Matrix& weight) {
  Matrix result(weight.rows, weight.cols);
  for (int64_t row = 0; row < weight.rows; ++row) {
    double largest = 0.0;
    bool finite = true;
    for (int64_t col = 0; col < weight.cols; ++col) {
      largest = std::max(largest, std::abs(weight.at(row, col)));
      finite = finite && std::isfinite(weight.at(row, col));
    }
    const double scale = smallest_bf16_of_at_least(static_cast<float>(largest) / 448.0f);
    for (int64_t col = 0; col < weight.cols; ++col) {
      const float quotient = static_cast<float>(weight.at(row, col)) / static_cast<float>(scale);
      result.at(row, col) = !finite ? NAN : scale == 0.0 ? 0.0 : scale * nearest_e4m3(quotient);
    }
  }
  return result;
}

Matrix loaded_values(const HostTensor& tensor) {
  const Matrix values = dequantise(tensor.data, tensor.dtype, tensor.count * tensor.rows, tensor.cols);
  return tensor.quantise_to == DType::fp8 ? fp8_rows(values) : values;
}

}  // namespace minfer::reference
