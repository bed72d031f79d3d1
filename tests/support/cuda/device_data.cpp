#include "tests/support/cuda/device_data.h"

#include <algorithm>
#include <limits>

namespace minfer::test {

GuardedTensor::GuardedTensor(Backend& backend, int64_t rows, int64_t cols, std::span<const float> values) {
  const int64_t stride = cols + kGap;
  std::vector<float> filled(static_cast<size_t>(kGap + rows * stride), kCanary);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = filled.data() + kGap + r * stride;
    if (values.empty()) {
      std::fill_n(row, cols, std::numeric_limits<float>::quiet_NaN());
    } else {
      std::copy_n(values.data() + r * cols, cols, row);
    }
  }
  memory_ = DeviceArray<float>(backend, filled);
  tensor_ = {memory_.data() + kGap, DType::f32, rows, cols, stride};
}

std::vector<float> GuardedTensor::values() const {
  const std::vector<float> memory = memory_.values();
  std::vector<float> rows;
  for (int64_t r = 0; r < tensor_.rows; ++r) {
    const auto row = memory.begin() + kGap + r * tensor_.stride;
    rows.insert(rows.end(), row, row + tensor_.cols);
  }
  return rows;
}

bool GuardedTensor::intact() const {
  const std::vector<float> memory = memory_.values();
  const auto begin = memory.begin();
  const auto gap_holds = [](auto gap) {
    return std::all_of(gap, gap + kGap, [](float x) { return x == kCanary; });
  };
  for (int64_t r = 0; r < tensor_.rows; ++r) {
    if (!gap_holds(begin + kGap + r * tensor_.stride + tensor_.cols)) return false;
  }
  return gap_holds(begin);
}

void sample(Backend& backend, const Tensor& logits, std::span<const SamplingRow> rows,
            std::span<SampledToken> out) {
  backend.launch_step({.rows = rows}, [&](const ForwardBatch&) { return logits; });
  backend.finish_step(out);
}

Weight load_vector(Backend& backend, std::span<const float> values) {
  return backend.load({"vector", values.data(), DType::f32, 1, 1, static_cast<int64_t>(values.size())});
}

}  // namespace minfer::test
