#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/moe/moe_products.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_experts.h"
#include "tests/support/cuda/cuda_weight.h"
#include "tests/support/gate_activations.h"
#include "tests/support/models/fixtures.h"

/// Experts with many routes each, through Hopper's tensor cores.
namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::CudaArray;
using test::CudaBiases;
using test::CudaRun;
using test::CudaTensor;
using test::CudaWeight;
using test::ExpertShape;

constexpr DType kStreamedTypes[] = {DType::bf16, DType::q4_0,  DType::q8_0, DType::q4_k, DType::q5_k,
                                    DType::q6_k, DType::mxfp4, DType::fp8,  DType::iq3_s};
/// Outputs and down's products are rounded to bf16, and so are quantised weights with their scales.
constexpr double kBf16ExpertNmse = 1e-5;
constexpr double kTileExpertNmse = 5e-5;
/// On a steep part of an activation, the rounding of its input dominates.
constexpr double kSteepNmse = 5e-4;

double limit_of(DType type) {
  return type == DType::bf16 ? kBf16ExpertNmse : kTileExpertNmse;
}

using Routes = std::vector<reference::ChosenExperts>;

/// Routes with these numbers of tokens for the experts, one expert for each token, in random order.
Routes routes_by_counts(const std::vector<int32_t>& counts, uint64_t seed) {
  std::vector<int32_t> experts;
  for (size_t e = 0; e < counts.size(); ++e)
    experts.insert(experts.end(), static_cast<size_t>(counts[e]), static_cast<int32_t>(e));
  const std::vector<int32_t> order = test::permutation(static_cast<int32_t>(experts.size()), seed);
  const std::vector<float> weights = test::normal_values(std::ssize(experts), seed);
  Routes routes(experts.size());
  for (size_t t = 0; t < routes.size(); ++t)
    routes[t] = {.experts = {experts[static_cast<size_t>(order[t])]}, .weights = {weights[t]}};
  return routes;
}

/// `used` different experts for each token; low numbers occur more often.
Routes skewed_routes(int64_t experts, int32_t used, int64_t tokens, uint64_t seed) {
  Routes routes(static_cast<size_t>(tokens));
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t some = t % 2 == 0 ? experts : std::max<int64_t>(used, experts / 4);
    const std::vector<int32_t> order =
        test::permutation(static_cast<int32_t>(some), seed + static_cast<uint64_t>(t));
    const std::vector<float> weights = test::normal_values(used, seed + static_cast<uint64_t>(t));
    reference::ChosenExperts& route = routes[static_cast<size_t>(t)];
    route.experts.assign(order.begin(), order.begin() + used);
    route.weights.assign(weights.begin(), weights.end());
  }
  return routes;
}

std::vector<std::string> paths_of(const LaunchLog& log) {
  std::vector<std::string> paths;
  const std::vector<KernelLaunch> known = log.table().from(0);
  for (const int32_t launch : log.launches())
    paths.push_back(known[static_cast<size_t>(launch)].path);
  return paths;
}

/// The launches of one op.
struct Noted {
  explicit Noted(const CudaRun& run) : launch(run.stream(), run.num_sms(), {}, &log) { log.begin_op(0); }
  LaunchLog log{{}, true};
  Launch launch;
};

/// Gate and up as a loader places them, one behind the other.
struct ExpertGateUp {
  ExpertGateUp(DType type, const ExpertShape& shape)
      : one(type, shape.experts, shape.ffn, shape.hidden, 4),
        other(type, shape.experts, shape.ffn, shape.hidden, 5) {}
  bool in_order() const { return one.weight().data < other.weight().data; }
  const CudaWeight& gate() const { return in_order() ? one : other; }
  const CudaWeight& up() const { return in_order() ? other : one; }
  CudaWeight one, other;
};

struct ExpertGating {
  GateActivation activation = GateActivation::silu;
  reference::GateUpBiases biases = {};
  bool weights_input = false;
};

/// Returns the error of gate and up; checks the path, and that a repeated product gives the same bits.
double gate_up_error(DType type, const ExpertShape& shape, const Routes& routes,
                     const ExpertGating& gating = {}, DType out_type = DType::bf16) {
  const int64_t tokens = std::ssize(routes);
  const std::vector<float> x = test::rounded(test::normal_values(tokens * shape.hidden, 1), DType::bf16);
  const ExpertGateUp weights(type, shape);
  const CudaArray<int32_t> ids(test::experts_of(routes));
  const CudaArray<float> input_weights(test::weights_of(routes));
  const CudaTensor x_tensor(DType::bf16, tokens, shape.hidden, x);
  const CudaBiases gate_bias(gating.biases.gate, shape, shape.ffn),
      up_bias(gating.biases.up, shape, shape.ffn);
  const CudaRun run;
  MoeProducts products(device_facts(132), test::limits(shape, tokens));
  std::vector<float> values;
  for (int i = 0; i < 2; ++i) {
    const CudaTensor out(out_type, tokens * shape.used, shape.ffn);
    Noted noted(run);
    products.gate_up_swiglu(
        noted.launch, {x_tensor.tensor(), weights.gate().weight(), weights.up().weight(), ids.data(),
                       shape.used, out.tensor(), gating.activation, gate_bias.weight(), up_bias.weight(),
                       gating.weights_input ? input_weights.data() : nullptr});
    run.wait();
    EXPECT_TRUE(out.intact());
    EXPECT_THAT(paths_of(noted.log),
                testing::ElementsAre("group_routes", "gather_routes", "expert_stream_gate_up"));
    if (i == 0) values = out.values();
    EXPECT_EQ(out.values(), values);
  }
  const Matrix expected = reference::moe_gate_up_swiglu(
      reference::to_matrix(x, tokens, shape.hidden), weights.gate().matrices(), weights.up().matrices(),
      routes, gating.activation, gating.biases, gating.weights_input);
  return test::nmse(values, expected.data);
}

/// Returns the larger error of down, with and without adding to a residual.
double down_error(DType type, const ExpertShape& shape, const Routes& routes,
                  const std::vector<float>& bias = {}) {
  const int64_t tokens = std::ssize(routes), num_routes = tokens * shape.used;
  const std::vector<float> hidden =
      test::rounded(test::normal_values(num_routes * shape.ffn, 2), DType::bf16);
  const std::vector<float> residual = test::normal_values(tokens * shape.hidden, 3);
  const CudaWeight down(type, shape.experts, shape.hidden, shape.ffn, 6);
  const CudaBiases biases(bias, shape, shape.hidden);
  const CudaArray<int32_t> ids(test::experts_of(routes));
  const CudaArray<float> weights(test::weights_of(routes));
  const CudaTensor hidden_tensor(DType::bf16, num_routes, shape.ffn, hidden);
  const CudaRun run;
  MoeProducts products(device_facts(132), test::limits(shape, tokens));
  const Matrix expected =
      reference::moe_down(reference::to_matrix(hidden, num_routes, shape.ffn), down.matrices(), routes, bias);
  double error = 0.0;
  for (const bool adds : {true, false}) {
    std::vector<float> values;
    for (int i = 0; i < 2; ++i) {
      const CudaTensor out(DType::f32, tokens, shape.hidden,
                           adds ? std::span<const float>(residual) : std::span<const float>());
      Noted noted(run);
      products.down(noted.launch, {hidden_tensor.tensor(), down.weight(), ids.data(), weights.data(),
                                   shape.used, out.tensor(), adds, biases.weight()});
      run.wait();
      EXPECT_TRUE(out.intact());
      EXPECT_THAT(paths_of(noted.log), testing::ElementsAre("group_routes", "gather_routes",
                                                            "expert_stream_product", "combine_routes"));
      if (i == 0) values = out.values();
      EXPECT_EQ(out.values(), values);
    }
    if (adds) {
      for (size_t i = 0; i < values.size(); ++i)
        values[i] -= residual[i];
    }
    error = std::max(error, test::nmse(values, expected.data));
  }
  return error;
}

class CudaExpertStream : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
  }
  /// Columns of whole blocks that are no whole tiles, if the type allows that.
  int64_t cols(int64_t some) const {
    return traits(GetParam()).block_elements == 256 ? (some + 255) / 256 * 256 : some;
  }
};

/// Batches of each size: with one route, full, one less and one more; experts without routes; all tokens on one expert.
TEST_P(CudaExpertStream, MatchesTheReferenceWhateverTheRoutes) {
  for (const std::vector<int32_t>& counts : std::vector<std::vector<int32_t>>{{1, 63, 64, 65, 0},
                                                                              {0, 0, 129, 31, 33},
                                                                              {127, 128, 129, 0, 1},
                                                                              {0, 0, 0, 330, 0},
                                                                              {0, 150, 0, 0, 0},
                                                                              {64, 64, 64, 64, 64},
                                                                              {70, 0, 0, 0, 0},
                                                                              {1, 31, 32, 0, 3},
                                                                              {33, 0, 0, 31, 0, 0},
                                                                              {0, 65, 0, 0, 0}}) {
    const Routes routes = routes_by_counts(counts, 17);
    const auto experts = static_cast<int64_t>(counts.size());
    EXPECT_LT(gate_up_error(GetParam(), {experts, 1, cols(320), 208}, routes), limit_of(GetParam()))
        << testing::PrintToString(counts);
    EXPECT_LT(down_error(GetParam(), {experts, 1, 208, cols(320)}, routes), limit_of(GetParam()))
        << testing::PrintToString(counts);
  }
}

/// More tiles than multiprocessors; rows that end in each part of a tile; columns of one stage, of many, and of partial stages of x.
TEST_P(CudaExpertStream, TakesOddShapes) {
  for (const auto& [shape, tokens] : {std::pair{ExpertShape{9, 4, cols(160), 16}, 60},
                                      {ExpertShape{9, 4, cols(32), 112}, 150},
                                      {ExpertShape{3, 2, cols(1376), 144}, 100},
                                      {ExpertShape{40, 8, cols(288), 80}, 90},
                                      {ExpertShape{7, 1, cols(256), 1040}, 500},
                                      {ExpertShape{2, 2, cols(96), 48}, 300},
                                      {ExpertShape{40, 8, cols(288), 80}, 60},
                                      {ExpertShape{7, 1, cols(256), 1040}, 90},
                                      {ExpertShape{3, 2, cols(1376), 144}, 20}}) {
    const Routes routes = skewed_routes(shape.experts, shape.used, tokens, 5);
    EXPECT_LT(gate_up_error(GetParam(), shape, routes), limit_of(GetParam()))
        << shape.experts << " experts [" << shape.ffn << ", " << shape.hidden << "]";
    const ExpertShape down{shape.experts, shape.used, shape.ffn, shape.hidden};
    EXPECT_LT(down_error(GetParam(), down, routes), limit_of(GetParam()))
        << shape.experts << " experts [" << down.hidden << ", " << down.ffn << "]";
  }
}

TEST_P(CudaExpertStream, KnowsEveryActivationWithABiasForEachExpert) {
  const ExpertShape shape{5, 2, cols(320), 176};
  const reference::GateUpBiases biases = test::gate_up_biases(shape.experts, shape.ffn);
  for (const test::NamedActivation& kind : test::kGateActivations) {
    for (const int64_t tokens : {33, 200}) {
      const Routes routes = skewed_routes(shape.experts, shape.used, tokens, 3);
      for (const ExpertGating& gating :
           {ExpertGating{kind.activation, {}}, ExpertGating{kind.activation, biases},
            ExpertGating{kind.activation, {.gate = {}, .up = biases.up}}}) {
        EXPECT_LT(gate_up_error(GetParam(), shape, routes, gating),
                  GetParam() == DType::bf16 ? kBf16ExpertNmse : kSteepNmse)
            << kind.name << ", " << tokens << " tokens";
      }
    }
  }
}

TEST_P(CudaExpertStream, AddsABiasOfEachExpertBehindDown) {
  const ExpertShape shape{5, 2, 176, cols(320)};
  const std::vector<float> bias = test::normal_values(shape.experts * shape.hidden, 41);
  EXPECT_LT(down_error(GetParam(), shape, skewed_routes(shape.experts, shape.used, 200, 3), bias),
            limit_of(GetParam()));
}

TEST_P(CudaExpertStream, WritesGateAndUpInF32) {
  const ExpertShape shape{4, 2, cols(320), 80};
  EXPECT_LT(gate_up_error(GetParam(), shape, skewed_routes(4, 2, 190, 2), {}, DType::f32),
            limit_of(GetParam()));
}

/// Routes are scaled when they are copied to the sorted rows: with one expert for each token and with several.
TEST_P(CudaExpertStream, WeighsWhatExpertsAreGiven) {
  const ExpertGating gating{.weights_input = true};
  EXPECT_LT(
      gate_up_error(GetParam(), {5, 1, cols(320), 208}, routes_by_counts({1, 63, 64, 65, 0}, 17), gating),
      limit_of(GetParam()));
  EXPECT_LT(gate_up_error(GetParam(), {8, 3, cols(192), 96}, skewed_routes(8, 3, 400, 5), gating),
            limit_of(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, CudaExpertStream, testing::ValuesIn(kStreamedTypes),
                         [](const auto& of) { return std::string(name(of.param)); });

class CudaExpertChunks : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
  }
};

/// Two chunks are streamed; the kernels for few tokens compute the rest.
TEST_F(CudaExpertChunks, TakeMoreRoutesThanAreSortedAtATime) {
  constexpr int64_t kTokens = 16389;
  const ExpertShape shape{16, 2, 64, 32};
  const Routes routes = skewed_routes(shape.experts, shape.used, kTokens, 8);
  const std::vector<float> x = test::rounded(test::normal_values(kTokens * shape.hidden, 1), DType::bf16);
  const std::vector<float> hidden =
      test::rounded(test::normal_values(kTokens * shape.used * shape.ffn, 2), DType::bf16);
  const ExpertGateUp weights(DType::bf16, shape);
  const CudaWeight down(DType::bf16, shape.experts, shape.hidden, shape.ffn, 6);
  const CudaArray<int32_t> ids(test::experts_of(routes));
  const CudaArray<float> route_weights(test::weights_of(routes));
  const CudaTensor x_tensor(DType::bf16, kTokens, shape.hidden, x);
  const CudaTensor hidden_tensor(DType::bf16, kTokens * shape.used, shape.ffn, hidden);
  const CudaTensor gate_up_out(DType::bf16, kTokens * shape.used, shape.ffn);
  const CudaTensor down_out(DType::f32, kTokens, shape.hidden);
  const CudaRun run;
  MoeProducts products(device_facts(132), test::limits(shape, kTokens));
  Noted gate_up(run), sum(run);
  products.gate_up_swiglu(gate_up.launch, {x_tensor.tensor(), weights.gate().weight(), weights.up().weight(),
                                           ids.data(), shape.used, gate_up_out.tensor()});
  products.down(sum.launch, {hidden_tensor.tensor(), down.weight(), ids.data(), route_weights.data(),
                             shape.used, down_out.tensor(), false});
  run.wait();
  EXPECT_EQ(std::ranges::count(paths_of(gate_up.log), "expert_stream_gate_up"), 2);
  EXPECT_EQ(std::ranges::count(paths_of(sum.log), "expert_stream_product"), 2);
  EXPECT_EQ(paths_of(gate_up.log).back(), "moe_gate_up");
  EXPECT_TRUE(gate_up_out.intact() && down_out.intact());
  EXPECT_LT(test::nmse(gate_up_out.values(), reference::moe_gate_up_swiglu(
                                                 reference::to_matrix(x, kTokens, shape.hidden),
                                                 weights.gate().matrices(), weights.up().matrices(), routes)
                                                 .data),
            kBf16ExpertNmse);
  EXPECT_LT(test::nmse(down_out.values(),
                       reference::moe_down(reference::to_matrix(hidden, kTokens * shape.used, shape.ffn),
                                           down.matrices(), routes)
                           .data),
            kBf16ExpertNmse);
}

/// A shared expert is one of one, and some models use all experts: one token is never grouped, however few experts there are.
TEST_F(CudaExpertChunks, OneTokenOfAllExpertsIsNotStreamed) {
  for (const ExpertShape& shape : {ExpertShape{1, 1, 256, 96}, ExpertShape{3, 3, 64, 208}}) {
    const Routes routes = skewed_routes(shape.experts, shape.used, 1, 3);
    const std::vector<float> x = test::rounded(test::normal_values(shape.hidden, 1), DType::bf16);
    const std::vector<float> hidden =
        test::rounded(test::normal_values(shape.used * shape.ffn, 2), DType::bf16);
    const ExpertGateUp weights(DType::bf16, shape);
    const CudaWeight down(DType::bf16, shape.experts, shape.hidden, shape.ffn, 6);
    const CudaArray<int32_t> ids(test::experts_of(routes));
    const CudaArray<float> route_weights(test::weights_of(routes));
    const CudaTensor x_tensor(DType::bf16, 1, shape.hidden, x);
    const CudaTensor hidden_tensor(DType::bf16, shape.used, shape.ffn, hidden);
    const CudaTensor gate_up_out(DType::bf16, shape.used, shape.ffn);
    const CudaTensor down_out(DType::f32, 1, shape.hidden);
    const CudaRun run;
    // The limits are those of steps with more tokens, so there is memory to stream.
    MoeProducts products(device_facts(132), test::limits(shape, 128));
    Launch launch = run.launch();
    products.gate_up_swiglu(launch, {x_tensor.tensor(), weights.gate().weight(), weights.up().weight(),
                                     ids.data(), shape.used, gate_up_out.tensor()});
    products.down(launch, {hidden_tensor.tensor(), down.weight(), ids.data(), route_weights.data(),
                           shape.used, down_out.tensor(), false});
    run.wait();
    EXPECT_TRUE(gate_up_out.intact() && down_out.intact());
    EXPECT_LT(test::nmse(gate_up_out.values(), reference::moe_gate_up_swiglu(
                                                   reference::to_matrix(x, 1, shape.hidden),
                                                   weights.gate().matrices(), weights.up().matrices(), routes)
                                                   .data),
              kBf16ExpertNmse);
    EXPECT_LT(
        test::nmse(down_out.values(), reference::moe_down(reference::to_matrix(hidden, shape.used, shape.ffn),
                                                          down.matrices(), routes)
                                          .data),
        kBf16ExpertNmse);
  }
}

TEST_F(CudaExpertChunks, AGraphServesOtherRoutes) {
  const ExpertShape shape{6, 2, 256, 96};
  constexpr int64_t kTokens = 160;
  const ExpertGateUp weights(DType::q8_0, shape);
  const CudaTensor x(DType::bf16, kTokens, shape.hidden, test::normal_values(kTokens * shape.hidden, 1));
  CudaArray<int32_t> ids(test::experts_of(skewed_routes(shape.experts, shape.used, kTokens, 1)));
  MoeProducts products(device_facts(132), test::limits(shape, kTokens));
  const CudaRun run;
  const auto multiply = [&](const CudaTensor& out) {
    Launch launch = run.launch();
    products.gate_up_swiglu(launch, {x.tensor(), weights.gate().weight(), weights.up().weight(), ids.data(),
                                     shape.used, out.tensor()});
  };
  const CudaTensor replayed(DType::bf16, kTokens * shape.used, shape.ffn);
  const CudaTensor eager(DType::bf16, kTokens * shape.used, shape.ffn);
  const GraphExec graph = run.capture([&] { multiply(replayed); });
  const std::vector<int32_t> of_one(static_cast<size_t>(kTokens * shape.used), 4);
  for (const std::vector<int32_t>& chosen :
       {test::experts_of(skewed_routes(shape.experts, shape.used, kTokens, 1)), of_one,
        test::experts_of(skewed_routes(shape.experts, shape.used, kTokens, 50))}) {
    ids.assign(chosen);
    run.replay(graph);
    multiply(eager);
    run.wait();
    EXPECT_EQ(replayed.values(), eager.values());
  }
}

/// The output of group_routes(); -1 in places that it did not write.
struct Grouping {
  std::vector<ExpertRoutes> batches;  ///< as many as possible
  BatchCounts counts;
  std::vector<int32_t> routes;
};
Grouping grouped(const std::vector<int32_t>& ids, int32_t experts, int32_t batch_routes,
                 int32_t turn_routes) {
  const auto num_routes = static_cast<int32_t>(ids.size());
  const auto most = static_cast<size_t>(most_batches(num_routes, experts, batch_routes));
  const CudaArray<int32_t> device_ids(ids);
  const CudaArray<ExpertRoutes> batches(std::vector<ExpertRoutes>(most, {-1, -1, -1, -1}));
  const CudaArray<BatchCounts> counts(std::vector<BatchCounts>{{-1, -1}});
  const CudaArray<int32_t> routes(std::vector<int32_t>(ids.size(), -1));
  const CudaRun run;
  Launch launch = run.launch();
  group_routes(launch, device_ids.data(), num_routes, experts,
               {batches.data(), counts.data(), routes.data(), batch_routes, turn_routes});
  run.wait();
  return {batches.values(), counts.values().front(), routes.values()};
}

/// Routes of the same expert keep their order.
TEST_F(CudaExpertChunks, RoutesAreSortedStably) {
  for (const int32_t experts : {1, 7, 128, 512}) {
    for (const int32_t num_routes : {1, 31, 33, 1000, 1025, 4096, 16383, 16384}) {
      for (const int32_t batch_routes : {8, 32, 64, 128}) {
        for (const bool is_skewed : {false, true}) {
          const std::vector<float> values = test::normal_values(num_routes, 7);
          std::vector<int32_t> ids(static_cast<size_t>(num_routes));
          for (size_t i = 0; i < ids.size(); ++i)
            ids[i] = is_skewed ? experts / 2 : static_cast<int32_t>(std::abs(values[i]) * 1e5f) % experts;
          const Grouping grouping = grouped(ids, experts, batch_routes, 0);
          std::vector<int32_t> expected(ids.size());
          std::iota(expected.begin(), expected.end(), 0);
          std::ranges::stable_sort(expected, {}, [&](int32_t i) { return ids[static_cast<size_t>(i)]; });
          ASSERT_EQ(grouping.routes, expected) << num_routes << " routes of " << experts << " experts";
          int32_t batch = 0, first = 0;
          for (int32_t expert = 0; expert < experts; ++expert) {
            const auto count = static_cast<int32_t>(std::ranges::count(ids, expert));
            const int32_t first_batch = batch;
            for (int32_t done = 0; done < count; done += batch_routes, ++batch) {
              ASSERT_LT(static_cast<size_t>(batch), grouping.batches.size());
              const ExpertRoutes& of = grouping.batches[static_cast<size_t>(batch)];
              ASSERT_EQ(of.expert, expert);
              ASSERT_EQ(of.first, first);
              ASSERT_EQ(of.count, count);
              ASSERT_EQ(of.first_batch, first_batch);
            }
            first += count;
          }
          ASSERT_EQ(grouping.counts, (BatchCounts{batch, 0}));
        }
      }
    }
  }
}

/// Batches with more than 8 routes alternate with others, then the rest follow; each route once. Experts without routes have no batch.
TEST_F(CudaExpertChunks, LargeAndSmallBatchesTakeTurns) {
  constexpr int32_t kTurnRoutes = 8;
  for (const auto& [experts, batch_routes] :
       {std::pair{1, 16}, {8, 16}, {32, 16}, {128, 16}, {5, 8}, {32, 8}}) {
    for (const int32_t num_routes : {1, 8, 9, 16, 17, 64, 256, 640, 4096}) {
      const std::vector<int32_t> ids = test::experts_of(skewed_routes(experts, 1, num_routes, num_routes));
      const auto [batches, counts, routes] = grouped(ids, experts, batch_routes, kTurnRoutes);
      std::vector<int32_t> seen(ids.size(), 0), large_of(static_cast<size_t>(experts), 0);
      const int32_t turns = std::min(counts.large, counts.all - counts.large);
      for (int32_t i = 0; i < counts.all; ++i) {
        const ExpertRoutes& of = batches.at(static_cast<size_t>(i));
        ASSERT_EQ(of.first_batch, i);
        ASSERT_GT(of.count, 0);
        ASSERT_LE(of.count, batch_routes);
        const bool is_large = of.count > kTurnRoutes;
        ASSERT_EQ(is_large, i < 2 * turns ? i % 2 == 0 : counts.large > turns) << "batch " << i;
        large_of[static_cast<size_t>(of.expert)] += is_large;
        for (int32_t j = of.first; j < of.first + of.count; ++j) {
          const auto route = static_cast<size_t>(routes.at(static_cast<size_t>(j)));
          ASSERT_EQ(ids.at(route), of.expert);
          ++seen[route];
        }
      }
      ASSERT_EQ(seen, std::vector<int32_t>(ids.size(), 1));
      ASSERT_EQ(std::accumulate(large_of.begin(), large_of.end(), 0), counts.large);
      for (int32_t expert = 0; expert < experts; ++expert) {
        const auto count = static_cast<int32_t>(std::ranges::count(ids, expert));
        ASSERT_EQ(large_of[static_cast<size_t>(expert)],
                  (batch_routes > kTurnRoutes ? count / batch_routes : 0) +
                      (count % batch_routes > kTurnRoutes ? 1 : 0));
      }
    }
  }
}

}  // namespace
}  // namespace minfer::cuda
