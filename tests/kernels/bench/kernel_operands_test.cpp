// The kernel benchmark's cases and operands against the reference: it measures what it claims to measure.
#include "kernels/bench/kernel_operands.h"

#include <gtest/gtest.h>

#include "tests/support/kernel_check.h"

namespace minfer {
namespace {

TEST(KernelOperands, ComputeWhatTheReferenceDoesOnTheCpu) {
  for (const test::KernelSuite& suite : test::kernel_suites(DType::f32)) {
    const std::vector<double> errors = test::kernel_errors(suite, make_cpu_backend(2));
    ASSERT_EQ(errors.size(), suite.cases.size());
    for (size_t i = 0; i < errors.size(); ++i)
      EXPECT_LT(errors[i], 1e-11) << suite.name << ", M " << suite.cases[i].tokens << ", "
                                  << suite.cases[i].shape();
  }
}

TEST(KernelCase, CountsTheKeysOfItsWindow) {
  for (const TokenScope scope : {TokenScope::decode, TokenScope::prefill}) {
    const bool is_decode = scope == TokenScope::decode;
    KernelCase c{.info = {}, .tokens = is_decode ? 3 : 300, .sequences = 3, .context = 100};
    c.info.kind = OpKind::attention;
    c.info.scope = scope;
    c.info.heads = c.info.kv_heads = 1;
    c.info.head_size = 16;
    for (const int32_t window : {0, 40, 200}) {
      c.info.window = window;
      BatchShape shape;
      shape.windows[0].window = window;
      for (int i = 0; i < 3; ++i)
        shape.add_sequence(is_decode, 100, is_decode ? 1 : 100, 0);
      EXPECT_EQ(c.work().flops, op_work(c.info, shape).flops) << name(scope) << ", window " << window;
      EXPECT_EQ(c.work().bytes(), op_work(c.info, shape).bytes()) << name(scope) << ", window " << window;
    }
  }
}

TEST(KernelOperands, HaveAsManyCopiesAsLeaveACacheCold) {
  const std::vector<test::KernelSuite> suites = test::kernel_suites(DType::f32);
  const test::KernelSuite& suite = suites[1];
  const int64_t run_bytes = suite.cases.front().work().bytes();
  KernelOperands warm(suite.tensors, make_cpu_backend(1), suite.cases, 16, 0);
  EXPECT_EQ(warm.copies(warm.cases().front()), 1);
  EXPECT_TRUE(warm.exceed_cache(warm.cases().front()));
  KernelOperands cold(suite.tensors, make_cpu_backend(1), suite.cases, 16, 10 * run_bytes);
  const KernelCase& c = cold.cases().front();
  EXPECT_GT(c.info.weight_bytes, 0);
  EXPECT_GE(cold.copies(c) * c.work().bytes(), 10 * run_bytes);
  EXPECT_NE(cold.input(c, 0).data, cold.input(c, 1).data);
}

TEST(KernelTimer, GivesATimeForEachRunButTheFirstOfAStep) {
  const std::vector<test::KernelSuite> suites = test::kernel_suites(DType::f32);
  const test::KernelSuite& suite = suites[1];
  KernelOperands operands(suite.tensors, make_cpu_backend(1), suite.cases, 16, 0);
  const std::vector<double> samples_us = measure_kernel_us(operands, operands.cases().front(), 2);
  EXPECT_GE(samples_us.size(), 4u);
  for (const double us : samples_us)
    EXPECT_GT(us, 0.0);
}

}  // namespace
}  // namespace minfer
