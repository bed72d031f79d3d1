#include "tests/support/cuda/cuda_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <cuda_fp8.h>

#include "kernels/half.h"

namespace minfer::test {
namespace {

void encode_element(float value, DType dtype, uint8_t* out) {
  uint16_t bits = 0;
  switch (dtype) {
    case DType::f32:
      std::memcpy(out, &value, sizeof value);
      return;
    case DType::f8_e4m3:
      *out = __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3);
      return;
    default:
      bits = dtype == DType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
      std::memcpy(out, &bits, sizeof bits);
  }
}

float decode_element(const uint8_t* in, DType dtype) {
  float value = 0.0f;
  uint16_t bits = 0;
  switch (dtype) {
    case DType::f32:
      std::memcpy(&value, in, sizeof value);
      return value;
    case DType::f8_e4m3:
      return f16_to_f32(__nv_cvt_fp8_to_halfraw(*in, __NV_E4M3).x);
    default:
      std::memcpy(&bits, in, sizeof bits);
      return dtype == DType::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  }
}

/// The memory of a CudaTensor.
std::vector<uint8_t> guarded(DType dtype, int64_t rows, int64_t cols, int64_t gap, float canary,
                             std::span<const float> values) {
  std::vector<float> filled(static_cast<size_t>(gap + rows * (cols + gap)), canary);
  for (int64_t r = 0; r < rows; ++r) {
    float* row = filled.data() + gap + r * (cols + gap);
    if (values.empty()) {
      std::fill_n(row, cols, NAN);
    } else {
      std::copy_n(values.data() + r * cols, cols, row);
    }
  }
  return encode(filled, dtype);
}

}  // namespace

float rounded(float value, DType dtype) {
  uint8_t bytes[sizeof(float)];
  encode_element(value, dtype, bytes);
  return decode_element(bytes, dtype);
}

std::vector<float> rounded(std::span<const float> values, DType dtype) {
  return decode(encode(values, dtype), dtype);
}

std::vector<uint8_t> encode(std::span<const float> values, DType dtype) {
  const size_t element = row_bytes(dtype, 1);
  std::vector<uint8_t> bytes(values.size() * element);
  for (size_t i = 0; i < values.size(); ++i)
    encode_element(values[i], dtype, bytes.data() + i * element);
  return bytes;
}

std::vector<float> decode(std::span<const uint8_t> bytes, DType dtype) {
  const size_t element = row_bytes(dtype, 1);
  std::vector<float> values(bytes.size() / element);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = decode_element(bytes.data() + i * element, dtype);
  return values;
}

CudaTensor::CudaTensor(DType dtype, int64_t rows, int64_t cols, std::span<const float> values)
    : memory_(guarded(dtype, rows, cols, kGap, kCanary, values)),
      tensor_{memory_.data() + kGap * static_cast<int64_t>(row_bytes(dtype, 1)), dtype, rows, cols,
              cols + kGap} {}

std::vector<float> CudaTensor::values() const {
  const std::vector<float> memory = decode(memory_.values(), tensor_.dtype);
  std::vector<float> rows;
  for (int64_t r = 0; r < tensor_.rows; ++r) {
    const auto row = memory.begin() + kGap + r * tensor_.stride;
    rows.insert(rows.end(), row, row + tensor_.cols);
  }
  return rows;
}

bool CudaTensor::intact() const {
  const std::vector<float> memory = decode(memory_.values(), tensor_.dtype);
  const auto gap_holds = [&](int64_t begin) {
    return std::all_of(memory.begin() + begin, memory.begin() + begin + kGap,
                       [](float x) { return x == kCanary; });
  };
  for (int64_t r = 0; r < tensor_.rows; ++r) {
    if (!gap_holds(kGap + r * tensor_.stride + tensor_.cols)) return false;
  }
  return gap_holds(0);
}

CudaRun::CudaRun() : stream_(cuda::make_stream()) {
  int device = 0;
  cuda::check(cudaGetDevice(&device), "asking for the device");
  cuda::check(cudaDeviceGetAttribute(&num_sms_, cudaDevAttrMultiProcessorCount, device), "counting SMs");
}

}  // namespace minfer::test
