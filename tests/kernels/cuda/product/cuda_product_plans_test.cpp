#include <cmath>
#include <memory>

#include <gtest/gtest.h>

#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/tuning/product_plan.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/one_plan.h"
#include "tests/support/kernel_check.h"
#include "tests/support/models/fixtures.h"

/// Every plan that a search may measure, and a table ask for, computes what the plan of the rules does.
namespace minfer::cuda {
namespace {

using test::DeviceTensor;
using test::DeviceWeight;
using test::OnePlan;

constexpr int64_t kPlannedTokens[] = {1, 2, 5, 16, 60, 100, 128, 200, 300, 2100};
constexpr int64_t kMostPlanned = 2100;
/// Between bf16 operands and exact ones, and outputs in bf16.
constexpr double kPlansNmse = 5e-5;

struct PlannedShape {
  const char* name;
  int64_t rows, cols;
};

class CudaProductPlans : public testing::TestWithParam<std::tuple<DType, PlannedShape>> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
    device_ = plan_device(cuda_devices().front());
  }

  /// Runs `compute(launch, tokens, plan's ops)` by every candidate and compares what it returns.
  template <class Compute>
  void compare(ProductOp op, const Compute& compute) {
    const auto plans = std::make_shared<OnePlan>();
    LinearOps ops(device_.multiprocessors,
                  {.max_tokens = kMostPlanned, .hidden_size = 2048, .ffn_size = rows_}, plans);
    for (const int64_t tokens : kPlannedTokens) {
      std::vector<double> expected;
      for (const ProductPlan& plan : product_candidates({type_, op, rows_, cols_}, tokens, device_)) {
        plans->plan = plan;
        Launch launch(nullptr, device_.multiprocessors);
        const std::vector<float> values = compute(ops, launch, tokens);
        if (expected.empty()) expected.assign(values.begin(), values.end());
        EXPECT_LT(test::nmse(values, expected), kPlansNmse) << to_string(plan) << ", " << tokens << " tokens";
      }
    }
  }

  const DType type_ = std::get<0>(GetParam());
  const int64_t rows_ = std::get<1>(GetParam()).rows, cols_ = std::get<1>(GetParam()).cols;
  PlanDevice device_;
};

TEST_P(CudaProductPlans, ComputeTheSame) {
  const DeviceWeight weight(type_, rows_, cols_, 1);
  const Weight w = weight.weight();
  const std::vector<float> x = test::random_activations(DType::bf16, kMostPlanned * cols_, 2);
  for (const bool adds : {false, true}) {
    compare(adds ? ProductOp::linear_add : ProductOp::linear, [&](LinearOps& ops, Launch& launch,
                                                                  int64_t tokens) {
      const auto some = std::span(x).first(static_cast<size_t>(tokens * cols_));
      const DeviceTensor in(DType::bf16, tokens, cols_, some);
      const std::vector<float> residual = test::normal_values(adds ? tokens * rows_ : 0, 4);
      const DeviceTensor out(DType::f32, tokens, rows_, residual);
      ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor(), .add_to_out = adds});
      return out.values();
    });
  }
}

TEST_P(CudaProductPlans, ComputeTheSameGateAndUp) {
  const DeviceWeight both(type_, 2 * rows_, cols_, 5);
  Weight gate = both.weight(), up = gate;
  gate.rows = up.rows = rows_;
  up.data = static_cast<const char*>(gate.data) +
            (is_tiled(gate.dtype) ? panels_of(rows_) * tiles_of(cols_) * tile_bytes(gate.dtype)
                                  : rows_ * cols_ * 2);
  const std::vector<float> x = test::random_activations(DType::bf16, kMostPlanned * cols_, 6);
  compare(ProductOp::gate_up, [&](LinearOps& ops, Launch& launch, int64_t tokens) {
    const auto some = std::span(x).first(static_cast<size_t>(tokens * cols_));
    const DeviceTensor in(DType::bf16, tokens, cols_, some);
    const DeviceTensor out(DType::bf16, tokens, rows_);
    ops.gate_up_swiglu(launch, {.x = in.tensor(), .gate = gate, .up = up, .out = out.tensor()});
    return out.values();
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaProductPlans,
                         testing::Combine(testing::Values(DType::bf16, DType::q4_k, DType::q6_k, DType::fp8),
                                          testing::Values(PlannedShape{"FewTiles", 1312, 2048},
                                                          PlannedShape{"ManyTiles", 8736, 512})),
                         [](const auto& of) {
                           return fmt::format("{}_{}", name(std::get<0>(of.param)),
                                              std::get<1>(of.param).name);
                         });

}  // namespace
}  // namespace minfer::cuda
