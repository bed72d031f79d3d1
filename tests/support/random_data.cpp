#include "tests/support/random_data.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <ostream>
#include <utility>

#include "kernels/base/random.h"
#include "kernels/half.h"
#include "kernels/quant_types.h"

namespace minfer {

void PrintTo(DType dtype, std::ostream* out) {
  *out << name(dtype);
}

}  // namespace minfer

namespace minfer::test {
namespace {

void put(uint8_t* out, uint16_t bits) {
  out[0] = static_cast<uint8_t>(bits);
  out[1] = static_cast<uint8_t>(bits >> 8);
}

/// Gives blocks of fp8 a valid bf16 scale, and removes NaN from their numbers.
void mend_fp8(std::vector<uint8_t>& bytes, uint64_t seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % sizeof(BlockFp8) >= 2 && (bytes[i] & 127) == 127) bytes[i] &= 128;
  }
  for (size_t block = 0; block < bytes.size(); block += sizeof(BlockFp8))
    put(bytes.data() + block,
        f32_to_bf16(static_cast<float>(uniform(seed + 1, static_cast<int64_t>(block)) * 0.02)));
}

/// A block of iq1_m stores its half in pieces of four bits.
void put_iq1_m(uint8_t* block, uint16_t bits) {
  for (int i = 0; i < 4; ++i) {
    uint8_t& byte = block[49 + 2 * i];
    byte = static_cast<uint8_t>((byte & 15) | (bits >> 4 * i & 15) << 4);
  }
}

/// Byte offsets of a block's half-precision fields, which cannot hold arbitrary bits.
std::vector<size_t> half_fields(DType dtype) {
  switch (dtype) {
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q2_k:
      return {80, 82};
    case DType::q3_k:
      return {108};
    case DType::q6_k:
      return {208};
    case DType::tq1_0:
      return {52};
    case DType::tq2_0:
      return {64};
    case DType::mxfp4:
    case DType::iq1_m:
      return {};
    default:
      return {0};
  }
}

}  // namespace

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

std::vector<uint8_t> random_weights(DType dtype, int64_t rows, int64_t cols, uint64_t seed) {
  const int64_t elements = rows * cols;
  std::vector<uint8_t> bytes(static_cast<size_t>(rows) * row_bytes(dtype, cols));
  if (!is_quantised(dtype)) {
    const std::vector<float> values = normal_values(elements, seed);
    for (int64_t i = 0; i < elements; ++i) {
      if (dtype == DType::f32) std::memcpy(bytes.data() + 4 * i, &values[i], 4);
      if (dtype == DType::f16) put(bytes.data() + 2 * i, f32_to_f16(values[i]));
      if (dtype == DType::bf16) put(bytes.data() + 2 * i, f32_to_bf16(values[i]));
    }
    return bytes;
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(uniform(seed, static_cast<int64_t>(i)) * 256.0);
  }
  if (dtype == DType::fp8) {
    mend_fp8(bytes, seed);
    return bytes;
  }
  for (size_t block = 0; block < bytes.size(); block += traits(dtype).block_bytes) {
    if (dtype == DType::mxfp4) bytes[block] = static_cast<uint8_t>(117 + bytes[block] % 8);  // 2^-10 to 2^-3
    const auto random_half = [&](size_t at) {
      const double scale = uniform(seed + 1, static_cast<int64_t>(at)) * 0.02 - 0.01;
      return f32_to_f16(static_cast<float>(scale));
    };
    for (const size_t field : half_fields(dtype))
      put(bytes.data() + block + field, random_half(block + field));
    if (dtype == DType::iq1_m) put_iq1_m(bytes.data() + block, random_half(block));
  }
  return bytes;
}

DType file_dtype(DType dtype) {
  return dtype == DType::fp8 ? DType::bf16 : dtype;
}

HostTensor random_tensor(DType dtype, std::span<const uint8_t> bytes, int64_t count, int64_t rows,
                         int64_t cols) {
  HostTensor tensor{"weight", bytes.data(), file_dtype(dtype), count, rows, cols};
  if (dtype != tensor.dtype) tensor.quantise_to = dtype;
  return tensor;
}

std::vector<DType> every_dtype() {
  std::vector<DType> dtypes;
  for (const DTypeTraits& type : all_dtypes())
    dtypes.push_back(type.dtype);
  dtypes.push_back(DType::fp8);
  return dtypes;
}

}  // namespace minfer::test
