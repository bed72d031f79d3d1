// Norms other than the plain RMS norm, and functions of single elements, on CUDA.
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

class CudaNormKinds : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }

  static void run(const CudaTensor& x, const reference::NormOptions& options, const CudaTensor& out,
                  bool add_to_out = false) {
    const CudaRun run;
    const CudaArray<float> weight(options.weight), bias(options.bias);
    const auto vector = [&](const CudaArray<float>& values, bool given) {
      return given ? Weight{.data = values.data(), .rows = 1, .cols = x.tensor().cols} : Weight{};
    };
    cuda::Launch launch = run.launch();
    cuda::norm(launch, {.x = x.tensor(),
                        .kind = options.kind,
                        .weight = vector(weight, !options.weight.empty()),
                        .bias = vector(bias, !options.bias.empty()),
                        .eps = static_cast<float>(options.eps),
                        .cut = static_cast<float>(options.cut),
                        .scale = static_cast<float>(options.scale),
                        .add_to_out = add_to_out,
                        .out = out.tensor()});
    run.wait();
    EXPECT_TRUE(out.intact());
  }

  /// For bf16 half of a number's last bit, in every number.
  static double limit(DType out) { return out == DType::f32 ? 1e-12 : 0x1p-16; }
};

TEST_F(CudaNormKinds, MatchTheReference) {
  for (const int64_t cols : {7, 64, 1003, 4096, 9000}) {
    const std::vector<float> weight = test::normal_values(cols, 2), bias = test::normal_values(cols, 3);
    const std::vector<reference::NormOptions> all{
        {.kind = NormKind::layer, .weight = weight, .eps = 1e-5},
        {.kind = NormKind::layer, .weight = weight, .bias = bias, .eps = 1e-5},
        {.kind = NormKind::rms, .weight = weight, .eps = 1e-5, .scale = 0.25},
        {.kind = NormKind::none},
        {.kind = NormKind::none, .scale = 0.22},
        {.kind = NormKind::cut, .cut = 1.0},
        {.kind = NormKind::cut, .scale = 0.5, .cut = -0.3}};
    for (const int64_t rows : {1, 70}) {
      for (const DType in : {DType::f32, DType::bf16}) {
        const std::vector<float> x = test::rounded(test::normal_values(rows * cols, 1, 3.0f), in);
        const CudaTensor input(in, rows, cols, x);
        for (size_t i = 0; i < all.size(); ++i) {
          const reference::Matrix expected = reference::norm(reference::to_matrix(x, rows, cols), all[i]);
          for (const DType to : {DType::f32, DType::bf16}) {
            const CudaTensor out(to, rows, cols);
            run(input, all[i], out);
            EXPECT_LT(test::nmse(out.values(), expected.data), limit(to))
                << "case " << i << ", " << name(in) << " to " << name(to) << ", " << rows << " x " << cols;
          }
        }
      }
    }
  }
}

/// Row r takes the weight of group r mod groups: in registers, and one element at a time.
TEST_F(CudaNormKinds, GroupsHaveWeightsOfTheirOwn) {
  constexpr int64_t kRows = 12, kGroups = 3;
  for (const int64_t cols : {7, 64, 1024, 9000}) {
    const std::vector<float> x = test::normal_values(kRows * cols, 1),
                             weights = test::normal_values(kGroups * cols, 2);
    std::vector<double> expected;
    for (int64_t row = 0; row < kRows; ++row) {
      const reference::Matrix of_row = reference::rms_norm(
          reference::to_matrix({x.begin() + row * cols, x.begin() + (row + 1) * cols}, 1, cols),
          {weights.data() + row % kGroups * cols, static_cast<size_t>(cols)}, 1e-5);
      expected.insert(expected.end(), of_row.data.begin(), of_row.data.end());
    }
    const CudaArray<float> weight(weights);
    for (const DType to : {DType::f32, DType::bf16}) {
      const CudaTensor in(DType::f32, kRows, cols, x), out(to, kRows, cols);
      NormArgs args{.x = in.tensor(),
                    .weight = {.data = weight.data(), .dtype = DType::f32, .rows = kGroups, .cols = cols},
                    .eps = 1e-5f,
                    .out = out.tensor()};
      const CudaRun run;
      cuda::Launch launch = run.launch();
      cuda::norm(launch, args);
      run.wait();
      EXPECT_TRUE(out.intact());
      EXPECT_LT(test::nmse(out.values(), expected), limit(to)) << cols << ' ' << name(to);
      args.kind = NormKind::layer;
      EXPECT_ANY_THROW(cuda::norm(launch, args));
    }
  }
}

TEST_F(CudaNormKinds, AreAddedToTheResidualStream) {
  for (const int64_t cols : {64, 1003, 4096}) {
    const std::vector<float> x = test::normal_values(5 * cols, 1), before = test::normal_values(5 * cols, 4);
    for (const NormKind kind : {NormKind::rms, NormKind::layer, NormKind::none}) {
      reference::NormOptions options{.kind = kind, .eps = 1e-5, .scale = 0.5};
      if (kind != NormKind::none) options.weight = test::normal_values(cols, 2);
      const CudaTensor input(DType::f32, 5, cols, x), out(DType::f32, 5, cols, before);
      run(input, options, out, true);
      reference::Matrix expected = reference::norm(reference::to_matrix(x, 5, cols), options);
      for (size_t i = 0; i < before.size(); ++i)
        expected.data[i] += before[i];
      EXPECT_LT(test::nmse(out.values(), expected.data), 1e-12) << cols;
    }
  }
}

TEST_F(CudaNormKinds, RunInPlaceWithTheSameBits) {
  const std::vector<float> x = test::normal_values(5 * 1000, 3);
  const reference::NormOptions options{
      .kind = NormKind::layer, .weight = test::normal_values(1000, 4), .eps = 1e-5};
  const CudaTensor apart(DType::f32, 5, 1000, x), both(DType::f32, 5, 1000, x), out(DType::f32, 5, 1000);
  run(apart, options, out);
  run(both, options, both);
  EXPECT_EQ(both.values(), out.values());
}

TEST_F(CudaNormKinds, RefuseWhatTheyCannotDo) {
  const CudaTensor x(DType::f32, 1, 64, std::vector<float>(64, 1.0f)), half(DType::bf16, 1, 64),
      wide(DType::f32, 1, 72);
  const reference::NormOptions layer{
      .kind = NormKind::layer, .weight = std::vector<float>(64, 1.0f), .eps = 1e-5};
  EXPECT_ANY_THROW(run(x, layer, wide));
  EXPECT_ANY_THROW(run(x, layer, half, true)) << "added to bf16";
  EXPECT_ANY_THROW(run(x, layer, x, true)) << "added to x";
  EXPECT_ANY_THROW(run(x, {.kind = NormKind::layer, .eps = 1e-5}, half)) << "no weight";
  EXPECT_ANY_THROW(run(x, {.kind = NormKind::none, .weight = layer.weight}, half)) << "a weight alone";
}

/// A token that is forbidden by its logit stays so.
TEST_F(CudaNormKinds, ASoftCapLeavesMinusInfinity) {
  const CudaRun run;
  const CudaTensor x(DType::f32, 1, 3, std::vector<float>{-INFINITY, 0.0f, INFINITY});
  const Activation cap{.kind = Activation::Kind::soft_cap, .cap = 3.0f};
  cuda::Launch launch = run.launch();
  cuda::activate(launch, {.x = x.tensor(), .activation = cap, .out = x.tensor()});
  run.wait();
  EXPECT_EQ(x.values(), (std::vector<float>{-INFINITY, 0.0f, 3.0f}));
}

TEST_F(CudaNormKinds, ActivationsMatchTheReference) {
  using Kind = Activation::Kind;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t cols : {5, 64, 1003, 8192}) {
      std::vector<float> x = test::rounded(test::normal_values(3 * cols, 1, 4.0f), dtype);
      x[0] = 60.0f;
      x[1] = -60.0f;
      for (const Activation& activation :
           {Activation{.kind = Kind::gelu_tanh}, Activation{.kind = Kind::gelu},
            Activation{.kind = Kind::soft_cap, .cap = 3.0f}, Activation{.kind = Kind::relu_squared},
            Activation{
                .kind = Kind::xielu, .positive = 0.8f, .negative = 1.1f, .linear = 0.5f, .eps = -1e-6f}}) {
        std::vector<double> expected;
        for (const float value : x)
          expected.push_back(reference::activated(activation, static_cast<double>(value)));
        const CudaRun run;
        const CudaTensor input(dtype, 3, cols, x), out(dtype, 3, cols);
        cuda::Launch launch = run.launch();
        cuda::activate(launch, {.x = input.tensor(), .activation = activation, .out = out.tensor()});
        cuda::activate(launch, {.x = input.tensor(), .activation = activation, .out = input.tensor()});
        run.wait();
        EXPECT_TRUE(out.intact());
        EXPECT_LT(test::nmse(out.values(), expected), limit(dtype))
            << static_cast<int>(activation.kind) << " " << name(dtype) << " " << cols;
        EXPECT_EQ(input.values(), out.values());
      }
    }
  }
}

}  // namespace
}  // namespace minfer
