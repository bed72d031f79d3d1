// Files whose matrices have different plain types, on a GPU.
#include <array>

#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/temporary_directory.h"

namespace minfer {
namespace {

/// bf16 activations, and the order of sums.
constexpr double kMaxNmse = 2e-3;

std::vector<float> logits_with(std::span<const DType> types, DeviceChoice device) {
  test::ModelParts model = test::tiny_model();
  test::set_matrix_types(model, types);
  const test::TemporaryDirectory dir;
  const std::filesystem::path path = dir.path() / "model.gguf";
  model.builder().write(path);
  const std::unique_ptr<ModelSource> source = open_model(path.string());
  EngineOptions options;
  options.device = device;
  options.max_model_len = 16;
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(std::vector<TokenId>{1, 5, 9, 4, 7, 7, 3}, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

TEST(CudaMixedTypes, MatricesInBf16AndF16MatchTheCpu) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  using enum DType;
  const std::vector<float> on_cpu = logits_with(std::array{f32}, DeviceChoice::cpu);
  const std::vector<double> expected(on_cpu.begin(), on_cpu.end());
  for (const auto& types : {std::array{bf16, f16, bf16}, {f16, f16, bf16}, {bf16, bf16, f16}})
    EXPECT_LT(test::nmse(logits_with(types, DeviceChoice::cuda), expected), kMaxNmse);
}

}  // namespace
}  // namespace minfer
