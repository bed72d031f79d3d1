// The benchmark's cases on a GPU, against the reference.
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/kernel_check.h"

namespace minfer {
namespace {

class CudaKernelCases : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// With f32 nothing is rounded below f32. With bf16 the outputs are, and the weights that go through cuBLASLt.
TEST_P(CudaKernelCases, MatchTheReference) {
  const double limit = GetParam() == DType::f32 ? 1e-10 : 2e-5;
  for (const test::KernelSuite& suite : test::kernel_suites(GetParam())) {
    const std::vector<double> errors =
        test::kernel_errors(suite, make_cuda_backend({.activation_dtype = GetParam()}));
    for (size_t i = 0; i < errors.size(); ++i)
      EXPECT_LT(errors[i], limit) << suite.name << ", M " << suite.cases[i].tokens << ", "
                                  << suite.cases[i].shape();
  }
}

INSTANTIATE_TEST_SUITE_P(Activations, CudaKernelCases, testing::Values(DType::f32, DType::bf16),
                         [](const auto& param_info) { return std::string(name(param_info.param)); });

}  // namespace
}  // namespace minfer
