// The weights that get another type at load, and refusals.
#include "models/decoder/weights/quantise.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "models/decoder/weights/model_source.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;

HostTensor named(const std::string& name, DType dtype = DType::bf16, int64_t rows = 64, int64_t cols = 96) {
  return {name, nullptr, dtype, 1, rows, cols};
}

template <class Tensors>
std::string refusal(const Tensors& tensors) {
  return test::refusal_of([&] { tensors_to_load(tensors, DType::fp8, "some.gguf"); });
}

TEST(Quantise, TakesTheMatricesOfLayersAlone) {
  for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down",
                           "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
      const HostTensor tensor = to_load(named(fmt::format("blk.31.{}.weight", part), dtype), DType::fp8, "");
      EXPECT_EQ(tensor.loaded_dtype(), DType::fp8) << part;
      EXPECT_EQ(tensor.dtype, dtype) << part;
    }
    EXPECT_FALSE(to_load(named(fmt::format("blk.31.{}.weight", part)), std::nullopt, "").quantise_to) << part;
    EXPECT_FALSE(to_load(named(fmt::format("blk.31.{}.weight", part), DType::q4_k, 64, 256), DType::fp8, "")
                     .quantise_to)
        << part;
  }
  for (const char* name : {"token_embd.weight", "output.weight", "output_norm.weight",
                           "blk.0.attn_norm.weight", "blk.0.attn_q.bias", "blk.0.attn_q_norm.weight",
                           "blk.0.ffn_gate_inp.weight", "attn_q.weight", "blk.attn_q.weight"})
    EXPECT_FALSE(to_load(named(name), DType::fp8, "").quantise_to) << name;
}

TEST(Quantise, MarksAllOrRefusesWhereThereIsNothing) {
  const std::array some{named("token_embd.weight"), named("blk.0.attn_q.weight", DType::q8_0),
                        named("blk.0.attn_k.weight", DType::f16)};
  const std::vector<HostTensor> loaded = tensors_to_load(some, DType::fp8, "some.gguf");
  ASSERT_EQ(loaded.size(), 3u);
  EXPECT_EQ(loaded[0].loaded_dtype(), DType::bf16);
  EXPECT_EQ(loaded[1].loaded_dtype(), DType::q8_0);
  EXPECT_EQ(loaded[2].loaded_dtype(), DType::fp8);
  const std::array none{named("token_embd.weight"), named("blk.0.attn_q.weight", DType::q6_k, 64, 256),
                        named("blk.0.attn_k.weight", DType::q4_k, 64, 256)};
  EXPECT_THAT(refusal(none), HasSubstr("quantization: some.gguf: the matrices of its layers are q4_k, q6_k, "
                                       "expected some of f32, f16 or bf16 to become fp8"));
  EXPECT_THAT(refusal(std::array{named("token_embd.weight")}), HasSubstr("of its layers are missing"));
  EXPECT_EQ(tensors_to_load(none, std::nullopt, "").size(), 3u);
}

TEST(Quantise, NamesAMatrixWhoseRowsAreTooOdd) {
  const std::array odd{named("blk.2.ffn_down.weight", DType::bf16, 64, 40)};
  EXPECT_THAT(refusal(odd),
              HasSubstr("some.gguf: tensor blk.2.ffn_down.weight: rows of 40 elements on a rank, "
                        "expected a multiple of 32 for fp8"));
}

TEST(Quantise, TakesAllTypesOfAFamily) {
  const auto model = make_synthetic_model("synthetic:tiny:bf16");
  size_t marked = 0;
  for (const HostTensor& tensor : tensors_to_load(model->tensors(), DType::fp8, model->name()))
    marked += tensor.quantise_to.has_value();
  EXPECT_EQ(marked, 2u * 7) << "of two layers";
}

}  // namespace
}  // namespace minfer
