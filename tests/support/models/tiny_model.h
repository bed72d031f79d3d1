#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/decoder/weights/model_source.h"
#include "tests/support/models/gguf_builder.h"

namespace minfer::test {

/// A whole model as keys and tensors; a test can change them before they become a file.
struct ModelParts {
  using Value = std::variant<uint32_t, int32_t, uint64_t, int64_t, float, bool, std::string,
                             std::vector<std::string>, std::vector<float>, std::vector<int32_t>>;
  struct TensorPart {
    DType dtype = DType::f32;
    std::vector<uint64_t> dims;   ///< contiguous dimension first
    std::vector<std::byte> data;  ///< empty: small values, not all alike
  };

  std::map<std::string, Value> keys;
  std::map<std::string, TensorPart> tensors;

  GgufBuilder builder() const;
  std::vector<std::byte> build() const { return builder().build(); }
};

/// A valid model of 2 layers, hidden size 32, 4 heads and 2 KV heads of size 8, feed-forward size 64, context
/// 64 and the small SentencePiece vocabulary. With `experts` > 0 the feed-forward layers choose 2 of them.
ModelParts tiny_model(std::string_view architecture = "llama", int32_t experts = 0);

/// Gives the model's matrices these plain types in turn, with the same values in each type: multiples of 1/64, which f16 and bf16
/// represent exactly. Among experts, up has the type of gate.
void set_matrix_types(ModelParts& model, std::span<const DType> types);

}  // namespace minfer::test
