// Files whose matrices have different plain types.
#include <array>

#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

std::vector<float> logits_with(std::span<const DType> types, int32_t experts) {
  test::ModelParts model = test::tiny_model("llama", experts);
  test::set_matrix_types(model, types);
  const test::TemporaryDirectory dir;
  const std::filesystem::path path = dir.path() / "model.gguf";
  model.builder().write(path);
  const std::unique_ptr<ModelSource> source = open_model(path.string());
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 16;
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(std::vector<TokenId>{1, 5, 9, 4, 7, 7, 3}, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

TEST(MixedTypes, MatricesInBf16AndF16GiveTheBitsOfTheSameValuesInF32) {
  using enum DType;
  for (const int32_t experts : {0, 4}) {
    const std::vector<float> expected = logits_with(std::array{f32}, experts);
    ASSERT_FALSE(expected.empty());
    EXPECT_NE(expected.front(), expected.back());
    EXPECT_EQ(logits_with(std::array{bf16, f16}, experts), expected) << experts << " experts";
    EXPECT_EQ(logits_with(std::array{f16, f16, bf16}, experts), expected) << experts << " experts";
    EXPECT_EQ(logits_with(std::array{bf16, f32, f16}, experts), expected) << experts << " experts";
  }
}

}  // namespace
}  // namespace minfer
