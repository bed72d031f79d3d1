#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace minfer {

/// Element types of tensors: GGUF's plain types and block formats, and a few of our own. quant_types.h has the blocks' layout.
enum class DType : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_nl,
  iq4_xs,
  mxfp4,
  tq1_0,
  tq2_0,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s,
  iq1_s,
  iq1_m,
  fp8,      ///< weights that are quantised at load; no GGUF file has it
  lut4,     ///< weights that a GPU converts at load (kernels/cuda/weights/lut4.h); no file has it
  f8_e4m3,  ///< KV caches, and products that measure a GPU; no file has it
  i64,      ///< token ids in a file of a head for drafts; no op takes them
};

/// A type is stored in blocks: `block_elements` consecutive elements of a row take `block_bytes` bytes.
struct DTypeTraits {
  DType dtype;
  std::string_view name;    ///< lower case, e.g. "q4_k"; what `--model synthetic:NAME:TYPE` takes
  uint32_t block_elements;  ///< 1 for plain types
  uint32_t block_bytes;
  uint32_t ggml_type;      ///< the number of the type in a GGUF file
  bool pads_rows = false;  ///< the last block of a row may have more elements than the row
};

const DTypeTraits& traits(DType dtype);
/// The types that the weights of a GGUF file may have.
std::span<const DTypeTraits> all_dtypes();
inline std::string_view name(DType dtype) {
  return traits(dtype).name;
}

std::optional<DType> dtype_from_ggml(uint32_t ggml_type);
std::optional<DType> dtype_from_name(std::string_view name);

/// Bytes of one row of `elements` elements. Throws Error unless `elements` is a multiple of the block (or the type pads rows), or on
/// overflow.
size_t row_bytes(DType dtype, int64_t elements);

inline bool is_quantised(DType dtype) {
  return traits(dtype).block_elements > 1;
}

}  // namespace minfer
