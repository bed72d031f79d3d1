#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaRun;
using test::CudaTensor;

constexpr float kEps = 1e-5f;

Weight vector_weight(const CudaArray<float>& values, int64_t cols) {
  return {.data = values.data(), .dtype = DType::f32, .count = 1, .rows = 1, .cols = cols};
}

class CudaRmsNorm : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }

  std::vector<float> run(const Tensor& x, std::span<const float> weight, const CudaTensor& out) {
    const CudaRun run;
    const CudaArray<float> scale(weight);
    cuda::Launch launch = run.launch();
    cuda::rms_norm(launch, x, vector_weight(scale, x.cols), kEps, out.tensor());
    std::vector<float> values = out.values();
    EXPECT_TRUE(out.intact());
    return values;
  }

  static double limit(DType out) { return out == DType::f32 ? 1e-12 : 5e-6; }
};

TEST_F(CudaRmsNorm, MatchesTheReference) {
  for (const DType in : {DType::f32, DType::bf16}) {
    for (const DType to : {DType::f32, DType::bf16}) {
      for (const int64_t cols : {1, 7, 8, 64, 1000, 1003, 4096, 5120, 8192, 8200, 20000}) {
        for (const int64_t rows : {1, 3, 70, 515}) {
          if (rows > 70 && cols % 1000 == 0) continue;
          const std::vector<float> x = test::rounded(test::normal_values(rows * cols, 1, 3.0f), in);
          const std::vector<float> weight = test::normal_values(cols, 2);
          const CudaTensor input(in, rows, cols, x);
          const std::vector<float> values = run(input.tensor(), weight, CudaTensor(to, rows, cols));
          EXPECT_EQ(input.values(), x);
          const reference::Matrix expected =
              reference::rms_norm(reference::to_matrix(x, rows, cols), weight, kEps);
          EXPECT_LT(test::nmse(values, expected.data), limit(to))
              << name(in) << " to " << name(to) << ", " << rows << " x " << cols;
        }
      }
    }
  }
}

TEST_F(CudaRmsNorm, RunsInPlaceWithTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t cols : {40, 4096, 9000}) {
      const std::vector<float> x = test::rounded(test::normal_values(5 * cols, 3), dtype);
      const std::vector<float> weight = test::normal_values(cols, 4);
      const CudaTensor apart(dtype, 5, cols, x);
      const CudaTensor both(dtype, 5, cols, x);
      EXPECT_EQ(run(both.tensor(), weight, both), run(apart.tensor(), weight, CudaTensor(dtype, 5, cols)));
    }
  }
}

TEST_F(CudaRmsNorm, ZeroRowsStayZero) {
  const CudaTensor x(DType::f32, 2, 64, std::vector<float>(128, 0.0f));
  EXPECT_EQ(run(x.tensor(), std::vector<float>(64, 2.0f), CudaTensor(DType::f32, 2, 64)),
            std::vector<float>(128, 0.0f));
}

TEST_F(CudaRmsNorm, ARowHasTheSameBitsAloneAndAmongOthers) {
  for (const int64_t cols : {4096, 9000}) {
    const std::vector<float> weight = test::normal_values(cols, 6);
    for (const int64_t rows : {40, 600}) {
      const std::vector<float> x = test::normal_values(rows * cols, 5);
      const CudaTensor all(DType::f32, rows, cols, x);
      const CudaTensor last(DType::f32, 1, cols, std::span(x).last(static_cast<size_t>(cols)));
      const std::vector<float> together = run(all.tensor(), weight, CudaTensor(DType::f32, rows, cols));
      EXPECT_EQ(run(last.tensor(), weight, CudaTensor(DType::f32, 1, cols)),
                std::vector<float>(together.end() - cols, together.end()))
          << rows << " x " << cols;
    }
  }
}

TEST_F(CudaRmsNorm, RefusesOtherTypesAndShapes) {
  const CudaTensor x(DType::f32, 1, 64, std::vector<float>(64, 1.0f));
  const CudaTensor half(DType::f16, 1, 64);
  const CudaTensor wide(DType::f32, 1, 72);
  EXPECT_ANY_THROW(run(x.tensor(), std::vector<float>(64, 1.0f), half));
  EXPECT_ANY_THROW(run(x.tensor(), std::vector<float>(64, 1.0f), wide));
}

}  // namespace
}  // namespace minfer
