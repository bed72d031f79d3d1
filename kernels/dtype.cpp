#include "kernels/dtype.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr std::array<DTypeTraits, 29> kTraits{{
    {DType::f32, "f32", 1, 4, 0},
    {DType::f16, "f16", 1, 2, 1},
    {DType::bf16, "bf16", 1, 2, 30},
    {DType::q4_0, "q4_0", 32, 18, 2},
    {DType::q4_1, "q4_1", 32, 20, 3},
    {DType::q5_0, "q5_0", 32, 22, 6},
    {DType::q5_1, "q5_1", 32, 24, 7},
    {DType::q8_0, "q8_0", 32, 34, 8},
    {DType::q2_k, "q2_k", 256, 84, 10},
    {DType::q3_k, "q3_k", 256, 110, 11},
    {DType::q4_k, "q4_k", 256, 144, 12},
    {DType::q5_k, "q5_k", 256, 176, 13},
    {DType::q6_k, "q6_k", 256, 210, 14},
    {DType::iq4_nl, "iq4_nl", 32, 18, 20},
    {DType::iq4_xs, "iq4_xs", 256, 136, 23},
    {DType::mxfp4, "mxfp4", 32, 17, 39},
    {DType::tq1_0, "tq1_0", 256, 54, 34},
    {DType::tq2_0, "tq2_0", 256, 66, 35},
    {DType::iq2_xxs, "iq2_xxs", 256, 66, 16},
    {DType::iq2_xs, "iq2_xs", 256, 74, 17},
    {DType::iq2_s, "iq2_s", 256, 82, 22},
    {DType::iq3_xxs, "iq3_xxs", 256, 98, 18},
    {DType::iq3_s, "iq3_s", 256, 110, 21},
    {DType::iq1_s, "iq1_s", 256, 50, 19},
    {DType::iq1_m, "iq1_m", 256, 56, 29},
    {DType::fp8, "fp8", 128, 130, UINT32_MAX, true},
    {DType::lut4, "lut4", 256, 144, UINT32_MAX},
    {DType::f8_e4m3, "fp8_e4m3", 1, 1, UINT32_MAX},
    {DType::i64, "i64", 1, 8, 27},
}};

}  // namespace

const DTypeTraits& traits(DType dtype) {
  return kTraits[static_cast<size_t>(dtype)];
}

std::span<const DTypeTraits> all_dtypes() {
  return std::span(kTraits).first(static_cast<size_t>(DType::fp8));
}

std::optional<DType> dtype_from_ggml(uint32_t ggml_type) {
  if (ggml_type == traits(DType::i64).ggml_type) return DType::i64;
  const auto found = std::ranges::find(all_dtypes(), ggml_type, &DTypeTraits::ggml_type);
  return found == all_dtypes().end() ? std::nullopt : std::optional(found->dtype);
}

std::optional<DType> dtype_from_name(std::string_view name) {
  const auto found = std::ranges::find(all_dtypes(), name, &DTypeTraits::name);
  return found == all_dtypes().end() ? std::nullopt : std::optional(found->dtype);
}

size_t row_bytes(DType dtype, int64_t elements) {
  const DTypeTraits& t = traits(dtype);
  if (elements < 0 || (elements % t.block_elements != 0 && !t.pads_rows)) {
    fail("a row of type {} has {} elements, expected a multiple of {}", t.name, elements, t.block_elements);
  }
  size_t bytes = 0;
  const size_t blocks = (static_cast<size_t>(elements) + t.block_elements - 1) / t.block_elements;
  if (__builtin_mul_overflow(blocks, size_t{t.block_bytes}, &bytes)) {
    fail("a row of type {} has {} elements, too many to address", t.name, elements);
  }
  return bytes;
}

}  // namespace minfer
