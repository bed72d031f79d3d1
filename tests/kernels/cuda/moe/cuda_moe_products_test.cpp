#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/choice/expert_strip_sizes.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/moe/moe_products.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_experts.h"
#include "tests/support/cuda/cuda_weight.h"
#include "tests/support/gate_activations.h"
#include "tests/support/models/fixtures.h"

namespace minfer {
namespace {

using cuda::LaunchLog;
using test::CudaArray;
using test::CudaBiases;
using test::CudaRun;
using test::CudaTensor;
using test::CudaWeight;
using test::experts_of;
using test::ExpertShape;
using test::limits;
using test::weights_of;

/// Outputs in bf16 are rounded by up to 2^-8 of their value; f32 sums of exact products differ only by their order.
constexpr double kBf16Limit = 0x1p-16;
constexpr double kF32Limit = 1e-9;

/// Different experts for every token; token 3 n + 1 uses the first ones, so that these have more routes.
std::vector<reference::ChosenExperts> random_routes(const ExpertShape& shape, int64_t tokens, uint64_t seed) {
  std::vector<reference::ChosenExperts> routes(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    const std::vector<int32_t> order =
        test::permutation(static_cast<int32_t>(shape.experts), seed + static_cast<uint64_t>(t));
    const std::vector<float> weights = test::normal_values(shape.used, seed + static_cast<uint64_t>(t));
    for (int32_t j = 0; j < shape.used; ++j) {
      routes[t].experts.push_back(t % 3 == 1 ? j : order[j]);
      routes[t].weights.push_back(weights[j]);
    }
  }
  return routes;
}

/// The kernels for few routes, which also take many on devices without Hopper's tensor cores.
class CudaMoeProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// This GPU without Hopper's tensor cores (cuda_expert_stream_test.cpp has them).
cuda::DeviceFacts without_wgmma() {
  cuda::DeviceFacts device = cuda::device_facts(132);
  device.has_wgmma = false;
  return device;
}

/// The function of gate and up.
struct Gating {
  GateActivation activation = GateActivation::silu;
  reference::GateUpBiases biases = {};
  std::vector<float> down_bias = {};
  bool weights_input = false;
};

/// Errors of both products against the reference; down's with and without a residual. Activations are f32 if `exact`, else bf16.
struct Errors {
  double gate_up;
  double down;
};

Errors errors(DType dtype, const ExpertShape& shape, int64_t tokens, bool exact, const Gating& gating = {},
              LaunchLog* log = nullptr) {
  const DType activation = exact ? DType::f32 : DType::bf16;
  const int64_t num_routes = tokens * shape.used;
  const std::vector<reference::ChosenExperts> routes = random_routes(shape, tokens, 9);
  const std::vector<float> x = test::rounded(test::normal_values(tokens * shape.hidden, 1), activation);
  const std::vector<float> hidden = test::rounded(test::normal_values(num_routes * shape.ffn, 2), activation);
  const std::vector<float> residual = test::normal_values(tokens * shape.hidden, 3);
  const CudaWeight gate(dtype, shape.experts, shape.ffn, shape.hidden, 4);
  const CudaWeight up(dtype, shape.experts, shape.ffn, shape.hidden, 5);
  const CudaWeight down(dtype, shape.experts, shape.hidden, shape.ffn, 6);
  const CudaArray<int32_t> ids(experts_of(routes));
  const CudaArray<float> weights(weights_of(routes));
  const CudaTensor x_tensor(activation, tokens, shape.hidden, x);
  const CudaTensor hidden_tensor(activation, num_routes, shape.ffn, hidden);
  const CudaTensor gate_up_out(activation, num_routes, shape.ffn);
  const CudaTensor down_out(DType::f32, tokens, shape.hidden, residual);
  const CudaTensor part_out(DType::f32, tokens, shape.hidden);

  const CudaBiases gate_bias(gating.biases.gate, shape, shape.ffn),
      up_bias(gating.biases.up, shape, shape.ffn);
  const CudaBiases down_bias(gating.down_bias, shape, shape.hidden);
  const CudaRun run;
  cuda::MoeProducts products(without_wgmma(), limits(shape, tokens));
  cuda::Launch launch(run.stream(), run.num_sms(), {}, log);
  if (log != nullptr) log->begin_op(0);
  products.gate_up_swiglu(launch, {x_tensor.tensor(), gate.weight(), up.weight(), ids.data(), shape.used,
                                   gate_up_out.tensor(), gating.activation, gate_bias.weight(),
                                   up_bias.weight(), gating.weights_input ? weights.data() : nullptr});
  products.down(launch, {hidden_tensor.tensor(), down.weight(), ids.data(), weights.data(), shape.used,
                         down_out.tensor(), true, down_bias.weight(), true});
  products.down(launch, {hidden_tensor.tensor(), down.weight(), ids.data(), weights.data(), shape.used,
                         part_out.tensor(), false, down_bias.weight()});
  run.wait();
  EXPECT_TRUE(gate_up_out.intact() && down_out.intact() && part_out.intact());

  const reference::Matrix expected_hidden = reference::moe_gate_up_swiglu(
      reference::to_matrix(x, tokens, shape.hidden), gate.matrices(), up.matrices(), routes,
      gating.activation, gating.biases, gating.weights_input);
  reference::Matrix expected = reference::moe_down(reference::to_matrix(hidden, num_routes, shape.ffn),
                                                   down.matrices(), routes, gating.down_bias);
  const double part_error = test::nmse(part_out.values(), expected.data);
  for (size_t i = 0; i < expected.data.size(); ++i)
    expected.data[i] += residual[i];
  return {test::nmse(gate_up_out.values(), expected_hidden.data),
          std::max(part_error, test::nmse(down_out.values(), expected.data))};
}

TEST_F(CudaMoeProducts, MatchTheReferenceInEveryType) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::q4_0, DType::q4_1, DType::q5_0, DType::q8_0,
                            DType::q3_k, DType::q4_k, DType::q5_k, DType::q6_k, DType::iq4_nl, DType::mxfp4,
                            DType::fp8, DType::tq1_0, DType::iq1_s, DType::iq2_s, DType::iq3_xxs}) {
    for (const int64_t tokens : {1, 2, 9, 70}) {
      const Errors found = errors(dtype, {6, 2, 512, 256}, tokens, false);
      EXPECT_LT(found.gate_up, kBf16Limit) << name(dtype) << ", " << tokens << " tokens";
      EXPECT_LT(found.down, kF32Limit) << name(dtype) << ", " << tokens << " tokens";
    }
  }
}

TEST_F(CudaMoeProducts, AreExactInF32) {
  for (const ExpertShape& shape : {ExpertShape{6, 2, 128, 64}, ExpertShape{5, 3, 37, 51}}) {
    for (const int64_t tokens : {1, 3, 40}) {
      const Errors found = errors(DType::f32, shape, tokens, true);
      EXPECT_LT(found.gate_up, 1e-11) << tokens << " tokens";
      EXPECT_LT(found.down, 1e-11) << tokens << " tokens";
    }
  }
}

TEST_F(CudaMoeProducts, TakeOddShapes) {
  for (const auto& [dtype, shape] : {std::pair{DType::bf16, ExpertShape{7, 3, 200, 72}},
                                     {DType::bf16, ExpertShape{3, 1, 36, 20}},
                                     {DType::q8_0, ExpertShape{9, 4, 160, 96}},
                                     {DType::q4_0, ExpertShape{2, 2, 32, 2080}},
                                     {DType::mxfp4, ExpertShape{9, 4, 160, 96}},
                                     {DType::fp8, ExpertShape{9, 4, 160, 704}},
                                     {DType::q6_k, ExpertShape{64, 2, 256, 512}},
                                     {DType::iq2_xs, ExpertShape{64, 2, 256, 512}},
                                     {DType::q3_k, ExpertShape{1, 1, 256, 512}},
                                     {DType::iq4_nl, ExpertShape{1, 1, 160, 96}},
                                     {DType::q4_k, ExpertShape{130, 8, 256, 768}}}) {
    for (const int64_t tokens : {1, 5, 33}) {
      const Errors found = errors(dtype, shape, tokens, false);
      EXPECT_LT(found.gate_up, kBf16Limit) << name(dtype) << ", " << tokens << " tokens";
      EXPECT_LT(found.down, kF32Limit) << name(dtype) << ", " << tokens << " tokens";
    }
  }
}

/// Few routes of gate and up are multiplied without groups. Down of a type that needs groups finds those of the step before in its
/// memory, made from other routes of the same number.
TEST_F(CudaMoeProducts, DownGroupsNewRoutesBehindExpertsMultipliedAlone) {
  const ExpertShape shape{64, 2, 128, 64};
  constexpr int64_t kTokens = 8, kRoutes = 16;
  const CudaWeight gate(DType::bf16, shape.experts, shape.ffn, shape.hidden, 4);
  const CudaWeight up(DType::bf16, shape.experts, shape.ffn, shape.hidden, 5);
  const CudaWeight down(DType::f16, shape.experts, shape.hidden, shape.ffn, 6);
  const std::vector<float> x = test::normal_values(kTokens * shape.hidden, 1);
  const std::vector<float> hidden = test::rounded(test::normal_values(kRoutes * shape.ffn, 2), DType::bf16);
  const CudaTensor x_tensor(DType::bf16, kTokens, shape.hidden, x);
  const CudaTensor hidden_tensor(DType::bf16, kRoutes, shape.ffn, hidden);
  const CudaTensor gate_up_out(DType::bf16, kRoutes, shape.ffn), out(DType::f32, kTokens, shape.hidden);
  CudaArray<int32_t> ids(std::vector<int32_t>(kRoutes, 0));
  CudaArray<float> weights(std::vector<float>(kRoutes, 0.0f));
  const CudaRun run;
  cuda::MoeProducts products(without_wgmma(), limits(shape, kTokens));
  for (const uint64_t step : {1, 2, 3}) {
    const std::vector<reference::ChosenExperts> routes = random_routes(shape, kTokens, 100 * step);
    ids.assign(experts_of(routes));
    weights.assign(weights_of(routes));
    LaunchLog log({}, true);
    log.begin_op(0);
    cuda::Launch launch(run.stream(), run.num_sms(), {}, &log);
    products.gate_up_swiglu(launch, {x_tensor.tensor(), gate.weight(), up.weight(), ids.data(), shape.used,
                                     gate_up_out.tensor()});
    ASSERT_EQ(log.launches().size(), 1u) << "gate and up alone";
    products.down(launch, {.hidden = hidden_tensor.tensor(),
                           .down = down.weight(),
                           .expert_ids = ids.data(),
                           .expert_weights = weights.data(),
                           .experts_used = shape.used,
                           .out = out.tensor(),
                           .add_to_out = false,
                           .follows_gate_up = true});
    run.wait();
    const reference::Matrix expected =
        reference::moe_down(reference::to_matrix(hidden, kRoutes, shape.ffn), down.matrices(), routes, {});
    EXPECT_LT(test::nmse(out.values(), expected.data), kF32Limit) << "step " << step;
  }
}

/// How many launches of that name a log has.
int64_t launches_of(const cuda::LaunchLog& log, std::string_view name) {
  const std::vector<KernelLaunch> launches = log.table().from(0);
  return std::ranges::count_if(
      log.launches(), [&](int32_t entry) { return launches[static_cast<size_t>(entry)].path == name; });
}

/// True if a product of `cols` columns goes by strips; not in a build for GPUs whose blocks have less shared memory.
bool takes_strips(DType dtype, const ExpertShape& shape, int64_t cols, int64_t tokens) {
  const int32_t routes =
      8 * std::min(2, cuda::expert_slots(dtype, cols, cuda::device_facts(132).strip_shared_bytes));
  return 8 * tokens * shape.used <= 5 * routes * shape.experts;
}

class CudaExpertStrips : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// Columns for one warp, and for more than a block has; batches of one, two and several tiles of routes; blocks that begin within a
/// strip; a last strip with missing rows. Down finds its routes already sorted, unless its batches have another size.
TEST_P(CudaExpertStrips, MatchTheReference) {
  const DType dtype = GetParam();
  const ExpertShape wide{5, 2, 11 * 256, 4 * 256}, narrow{5, 2, 256, 16 * 256}, many{40, 3, 3 * 256, 5 * 256};
  ASSERT_TRUE(takes_strips(dtype, many, many.hidden, 28)) << "every build has room for three chunks";
  for (const auto& [shape, tokens] :
       {std::pair{wide, 4}, {wide, 13}, {narrow, 4}, {narrow, 9}, {many, 4}, {many, 28}, {many, 60}}) {
    const Gating gating{.biases = test::gate_up_biases(shape.experts, shape.ffn),
                        .down_bias = test::normal_values(shape.experts * shape.hidden, 41)};
    LaunchLog log({}, true);
    const Errors found = errors(dtype, shape, tokens, false, gating, &log);
    const std::string what = fmt::format("{}, {} experts of {} x {}, {} tokens", name(dtype), shape.experts,
                                         shape.ffn, shape.hidden, tokens);
    EXPECT_LT(found.gate_up, kBf16Limit) << what;
    EXPECT_LT(found.down, kF32Limit) << what;
    EXPECT_EQ(launches_of(log, "expert_strip_gate_up"),
              takes_strips(dtype, shape, shape.hidden, tokens) ? 1 : 0)
        << what;
    EXPECT_EQ(launches_of(log, "expert_strip"), takes_strips(dtype, shape, shape.ffn, tokens) ? 2 : 0)
        << what;
    EXPECT_LE(launches_of(log, "group_routes"), shape.experts == many.experts ? 2 : 3) << what;
  }
}

/// The last strip has missing rows, blocks begin within an expert's strips, and some experts have no routes.
TEST_P(CudaExpertStrips, TakeOddShapes) {
  const DType dtype = GetParam();
  const int64_t least = traits(dtype).block_elements == 256 ? 256 : 32;
  for (const auto& [shape, tokens] : {std::pair{ExpertShape{9, 4, 5 * least, 3 * least}, 2},
                                      {ExpertShape{3, 1, 7 * least, 17 * least}, 33},
                                      {ExpertShape{64, 2, 9 * least, least}, 21}}) {
    const Errors found = errors(dtype, shape, tokens, false);
    EXPECT_LT(found.gate_up, kBf16Limit) << name(dtype) << ", " << tokens << " tokens";
    EXPECT_LT(found.down, kF32Limit) << name(dtype) << ", " << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaExpertStrips,
                         testing::Values(DType::q4_0, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k,
                                         DType::mxfp4, DType::fp8),
                         [](const auto& type) { return std::string(name(type.param)); });

TEST_F(CudaMoeProducts, TakeMoreRoutesThanFitAtATime) {
  const Errors found = errors(DType::bf16, {4, 2, 64, 32}, 2500, false);
  EXPECT_LT(found.gate_up, kBf16Limit);
  EXPECT_LT(found.down, kF32Limit);
}

/// By routes, by batches and in f32 arithmetic; with more routes than fit at a time, whose weights go with them.
TEST_F(CudaMoeProducts, WeighWhatExpertsAreGiven) {
  for (const auto& [dtype, shape] : {std::pair{DType::mxfp4, ExpertShape{9, 4, 160, 96}},
                                     {DType::bf16, ExpertShape{7, 3, 200, 72}},
                                     {DType::q4_k, ExpertShape{130, 8, 256, 768}},
                                     {DType::q8_0, ExpertShape{16, 1, 160, 96}},
                                     {DType::f16, ExpertShape{3, 1, 38, 20}}}) {
    const Gating gating{.biases = test::gate_up_biases(shape.experts, shape.ffn), .weights_input = true};
    for (const int64_t tokens : {1, 5, 33})
      EXPECT_LT(errors(dtype, shape, tokens, false, gating).gate_up, kBf16Limit)
          << name(dtype) << ", " << tokens << " tokens";
  }
  EXPECT_LT(errors(DType::bf16, {4, 2, 64, 32}, 2500, false, {.weights_input = true}).gate_up, kBf16Limit);
  EXPECT_LT(errors(DType::f32, {5, 3, 37, 51}, 40, true, {.weights_input = true}).gate_up, 1e-11);
}

/// Down by routes, by batches and in f32 arithmetic; also with columns that are no multiple of four.
TEST_F(CudaMoeProducts, AddABiasOfEachExpertBeforeItsWeight) {
  for (const auto& [dtype, shape] : {std::pair{DType::mxfp4, ExpertShape{9, 4, 160, 96}},
                                     {DType::bf16, ExpertShape{7, 3, 200, 72}},
                                     {DType::q4_k, ExpertShape{130, 8, 256, 768}},
                                     {DType::f16, ExpertShape{3, 1, 38, 20}}}) {
    const Gating gating{.down_bias = test::normal_values(shape.experts * shape.hidden, 41)};
    for (const int64_t tokens : {1, 5, 33})
      EXPECT_LT(errors(dtype, shape, tokens, false, gating).down, kF32Limit)
          << name(dtype) << ", " << tokens << " tokens";
  }
  const ExpertShape odd{5, 3, 37, 51};
  EXPECT_LT(errors(DType::f32, odd, 40, true, {.down_bias = test::normal_values(5 * 37, 41)}).down, 1e-11);
}

class CudaMoeActivation : public testing::TestWithParam<test::NamedActivation> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
  const GateActivation activation_ = GetParam().activation;
};

/// Tokens are multiplied route by route, by batches, and in f32 arithmetic.
TEST_P(CudaMoeActivation, MatchesTheReferenceWithABiasForEachExpert) {
  for (const auto& [dtype, shape] : {std::pair{DType::bf16, ExpertShape{7, 3, 200, 72}},
                                     {DType::q8_0, ExpertShape{9, 4, 160, 96}},
                                     {DType::q4_k, ExpertShape{6, 2, 256, 512}},
                                     {DType::f16, ExpertShape{3, 1, 36, 20}}}) {
    const reference::GateUpBiases biases = test::gate_up_biases(shape.experts, shape.ffn);
    for (const int64_t tokens : {1, 5, 33}) {
      for (const Gating& gating : {Gating{activation_, {}}, Gating{activation_, biases},
                                   Gating{activation_, {.gate = {}, .up = biases.up}}}) {
        EXPECT_LT(errors(dtype, shape, tokens, false, gating).gate_up, kBf16Limit)
            << name(dtype) << ", " << tokens << " tokens";
      }
    }
  }
}

TEST_P(CudaMoeActivation, IsExactInF32) {
  const ExpertShape shape{5, 3, 37, 51};
  const Gating gating{activation_, test::gate_up_biases(shape.experts, shape.ffn)};
  for (const int64_t tokens : {1, 40})
    EXPECT_LT(errors(DType::f32, shape, tokens, true, gating).gate_up, 1e-11) << tokens << " tokens";
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaMoeActivation, testing::ValuesIn(test::kGateActivations),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST_F(CudaMoeProducts, AGraphServesOtherRoutes) {
  const ExpertShape shape{6, 2, 256, 256};
  constexpr int64_t kTokens = 11;
  const CudaWeight gate(DType::q8_0, shape.experts, shape.ffn, shape.hidden, 4);
  const CudaWeight up(DType::q8_0, shape.experts, shape.ffn, shape.hidden, 5);
  const CudaTensor x(DType::bf16, kTokens, shape.hidden, test::normal_values(kTokens * shape.hidden, 1));
  CudaArray<int32_t> ids(experts_of(random_routes(shape, kTokens, 1)));
  cuda::MoeProducts products(without_wgmma(), limits(shape, kTokens));
  const CudaRun run;
  const auto multiply = [&](const CudaTensor& out) {
    cuda::Launch launch = run.launch();
    products.gate_up_swiglu(launch,
                            {x.tensor(), gate.weight(), up.weight(), ids.data(), shape.used, out.tensor()});
  };
  const CudaTensor replayed(DType::bf16, kTokens * shape.used, shape.ffn);
  const CudaTensor eager(DType::bf16, kTokens * shape.used, shape.ffn);
  const cuda::GraphExec graph = run.capture([&] { multiply(replayed); });
  for (const uint64_t seed : {1, 50}) {
    ids.assign(experts_of(random_routes(shape, kTokens, seed)));
    run.replay(graph);
    multiply(eager);
    run.wait();
    EXPECT_EQ(replayed.values(), eager.values());
  }
}

TEST_F(CudaMoeProducts, RoundNothingWithActivationsInF32) {
  for (const DType dtype : {DType::bf16, DType::f16, DType::q4_0, DType::q8_0, DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::mxfp4, DType::fp8}) {
    const Errors found = errors(dtype, {5, 2, 256, 256}, 7, true);
    EXPECT_LT(found.gate_up, 1e-11) << name(dtype);
    EXPECT_LT(found.down, 1e-11) << name(dtype);
  }
}

TEST_F(CudaMoeProducts, RefuseAnOutputOfAnotherType) {
  const ExpertShape shape{2, 1, 32, 32};
  const CudaWeight down(DType::bf16, 2, 32, 32, 1);
  const CudaTensor hidden(DType::bf16, 1, 32);
  const CudaTensor out(DType::bf16, 1, 32);
  const CudaArray<int32_t> ids(std::vector<int32_t>{0});
  const CudaArray<float> weights(std::vector<float>{1.0f});
  cuda::MoeProducts products(without_wgmma(), limits(shape, 1));
  const CudaRun run;
  cuda::Launch launch = run.launch();
  EXPECT_ANY_THROW(
      products.down(launch, {hidden.tensor(), down.weight(), ids.data(), weights.data(), 1, out.tensor()}));
}

}  // namespace
}  // namespace minfer
