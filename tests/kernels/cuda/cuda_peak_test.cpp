// The products that measure a GPU's ceilings.
#include <cmath>
#include <cstdio>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/product/matmul.h"
#include "kernels/cuda/profiler/peak.h"
#include "kernels/fp8.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"

namespace minfer {
namespace {

bool has_fp8() {
  return test::has_cuda_device() && has_fp8_tensor_cores(cuda_devices().front());
}

/// Codes of random numbers of magnitude 0.5 to 2.
std::vector<uint8_t> random_e4m3(int64_t count, uint32_t seed) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  for (uint8_t& code : codes) {
    seed = seed * 1664525u + 1013904223u;
    code = static_cast<uint8_t>((seed >> 24 & 0x8f) | 0x30);
  }
  return codes;
}

TEST(CudaPeak, IsMeasuredInF32BesideTheTensorCores) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const GpuPeak peak = measure_gpu_peak(DType::bf16);
  std::printf("%.0f GFLOP/s bf16, %.0f f32\n", peak.gflops, peak.vector_gflops);
  EXPECT_GT(peak.vector_gflops, 1e2);
  EXPECT_LT(peak.vector_gflops, peak.gflops);
  EXPECT_EQ(measure_gpu_peak(DType::f32).vector_gflops, 0.0) << "that is what products are in";
}

TEST(CudaPeak, IsMeasuredOfFp8OnlyWhenAskedFor) {
  if (!has_fp8()) GTEST_SKIP() << "no CUDA device with FP8 tensor cores";
  EXPECT_EQ(measure_gpu_peak(DType::bf16).fp8_gflops, 0.0);
  const GpuPeak peak = measure_gpu_peak(DType::bf16, true);
  std::printf("%.0f GB/s, %.0f GFLOP/s bf16, %.0f e4m3\n", peak.read_gbps, peak.gflops, peak.fp8_gflops);
  // Bounds that hold for any device and that a wrong unit exceeds.
  EXPECT_GT(peak.fp8_gflops, 1e3);
  EXPECT_LT(peak.fp8_gflops, 1e8);
}

TEST(CudaPeak, ProductsOfE4m3AreThoseOfTheNumbers) {
  if (!has_fp8()) GTEST_SKIP() << "no CUDA device with FP8 tensor cores";
  constexpr int64_t kRows = 128, kCols = 256, kTokens = 64;
  const std::vector<uint8_t> weight = random_e4m3(kRows * kCols, 1), x = random_e4m3(kTokens * kCols, 2);
  const test::CudaArray<uint8_t> device_weight(weight), device_x(x);
  const test::CudaTensor out(DType::bf16, kTokens, kRows);
  const cuda::Product product{.weight = {device_weight.data(), DType::f8_e4m3, 1, kRows, kCols},
                              .x = {.data = device_x.data(),
                                    .dtype = DType::f8_e4m3,
                                    .rows = kTokens,
                                    .cols = kCols,
                                    .stride = kCols},
                              .out = out.tensor()};
  cuda::Matmul matmul;
  const std::vector<cuda::Matmul::Plan> plans = matmul.propose(product, kTokens, 1);
  ASSERT_FALSE(plans.empty());
  const test::CudaRun run;
  matmul.run(run.stream(), product, plans.front());
  run.wait();
  EXPECT_TRUE(out.intact());
  const std::vector<float> found = out.values();
  for (int64_t token = 0; token < kTokens; ++token) {
    for (int64_t row = 0; row < kRows; ++row) {
      double sum = 0.0, magnitudes = 0.0;
      for (int64_t i = 0; i < kCols; ++i) {
        const double term = static_cast<double>(e4m3_to_f32(weight[static_cast<size_t>(row * kCols + i)])) *
                            e4m3_to_f32(x[static_cast<size_t>(token * kCols + i)]);
        sum += term;
        magnitudes += std::abs(term);
      }
      // A fast sum keeps some 13 bits of its largest addend; the result is rounded to bf16.
      EXPECT_NEAR(found[static_cast<size_t>(token * kRows + row)], sum,
                  std::abs(sum) / 256.0 + magnitudes / 4096.0)
          << token << ", " << row;
    }
  }
}

}  // namespace
}  // namespace minfer
