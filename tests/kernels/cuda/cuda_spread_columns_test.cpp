// Logits of some tokens as rows of the whole vocabulary, on CUDA.
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

TEST(CudaSpreadColumns, AreThoseOfTheirTokens) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  std::mt19937 random(7);
  for (const auto& [drafted, tokens] :
       {std::pair{1, 1}, {5, 1023}, {96, 288}, {1024, 1025}, {32000, 128256}}) {
    for (const int64_t rows : {1, 3, 64}) {
      std::vector<float> columns(static_cast<size_t>(tokens), -1.0f);
      for (int32_t i = 0; i < drafted; ++i)
        columns[random() % columns.size()] = static_cast<float>(i);
      const std::vector<float> values = test::normal_values(rows * drafted, 3);
      const test::CudaArray<float> device_columns(columns);
      const test::CudaTensor x(DType::f32, rows, drafted, values), out(DType::f32, rows, tokens);
      const test::CudaRun run;
      cuda::Launch launch = run.launch();
      cuda::spread_columns(launch, {.x = x.tensor(),
                                    .columns = {.data = device_columns.data(), .rows = 1, .cols = tokens},
                                    .out = out.tensor()});
      run.wait();
      EXPECT_TRUE(out.intact());
      const std::vector<float> found = out.values();
      for (size_t i = 0; i < found.size(); ++i) {
        const float column = columns[i % columns.size()];
        const size_t row = i / columns.size() * static_cast<size_t>(drafted);
        const float expected = column < 0.0f ? -INFINITY : values[row + static_cast<size_t>(column)];
        ASSERT_EQ(found[i], expected) << "column " << i % columns.size();
      }
    }
  }
}

}  // namespace
}  // namespace minfer
