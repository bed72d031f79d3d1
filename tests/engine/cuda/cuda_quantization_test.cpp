// Whole models whose weights are quantised to fp8 at load, on a GPU: the same weights as on the CPU.
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

std::vector<float> fp8_logits(const std::string& model, DeviceChoice device, DType dtype, int32_t chunk) {
  const auto source = open_model(model);
  EngineOptions options;
  options.device = device;
  if (device == DeviceChoice::cuda) options.dtype = dtype;
  options.quantization = DType::fp8;
  options.max_model_len = 96;
  Evaluator evaluator(*source, options);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < 96; ++i)
    tokens.push_back(37 * i % evaluator.vocab_size());
  std::vector<float> logits;
  evaluator.run(tokens, chunk, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

class CudaQuantization : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// In pieces of one token, of some, and of more than the kernels for few tokens take.
TEST_P(CudaQuantization, GivesTheLogitsOfTheCpu) {
  const std::string model = GetParam().starts_with("tiny")
                                ? "synthetic:tiny:" + GetParam().substr(5)
                                : source_path("tests/golden/") + GetParam() + ".gguf";
  const std::vector<float> expected = fp8_logits(model, DeviceChoice::cpu, DType::f32, 0);
  for (const int32_t chunk : {1, 7, 30, 96}) {
    EXPECT_LT(test::nmse(fp8_logits(model, DeviceChoice::cuda, DType::f32, chunk), expected), 1e-7) << chunk;
    // A token whose experts rank almost equally may get other ones. Dense layers also round activations to FP8, from two tokens on.
    const bool has_experts = GetParam() == "mixtral" || GetParam() == "qwen3moe";
    const double rounded = has_experts ? 5e-3 : chunk == 1 ? 1e-3 : 1.5e-2;
    EXPECT_LT(test::nmse(fp8_logits(model, DeviceChoice::cuda, DType::bf16, chunk), expected), rounded)
        << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaQuantization,
                         testing::Values("tiny_f32", "tiny_f16", "tiny_bf16", "mixtral", "qwen3moe"),
                         [](const auto& model) { return model.param; });

}  // namespace
}  // namespace minfer
