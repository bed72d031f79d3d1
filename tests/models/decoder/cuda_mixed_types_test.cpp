// Files whose matrices have different plain types, on a GPU.
#include <array>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/models/typed_logits.h"

namespace minfer {
namespace {

/// bf16 activations, and the order of sums.
constexpr double kMaxNmse = 2e-3;

TEST(CudaMixedTypes, MatricesInBf16AndF16MatchTheCpu) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  using enum DType;
  const std::vector<float> on_cpu = test::logits_with(std::array{f32}, 0, DeviceChoice::cpu);
  const std::vector<double> expected(on_cpu.begin(), on_cpu.end());
  for (const auto& types : {std::array{bf16, f16, bf16}, {f16, f16, bf16}, {bf16, bf16, f16}})
    EXPECT_LT(test::nmse(test::logits_with(types, 0, DeviceChoice::cuda), expected), kMaxNmse);
}

}  // namespace
}  // namespace minfer
