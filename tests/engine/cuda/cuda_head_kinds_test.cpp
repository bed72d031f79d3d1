// Models whose layers have heads of two sizes and numbers of KV heads, on CUDA: each kind has its own plan, also in graphs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/served_model.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

/// Heads of 256 with a window of 64, and heads of 512: the sizes with kernels on tensor cores.
const std::string kWide = "synthetic:tiny-wide:bf16";
/// Heads of 16 and 48.
const std::string kNarrow = source_path("tests/golden/gemma4.gguf");
constexpr test::TokenPattern kHeadPattern{.first = 1, .end = 250};

EngineOptions options_of(DType dtype) {
  EngineOptions options = test::served_options(dtype);
  options.enable_prefix_caching = false;
  return options;
}

std::vector<float> wide_logits(std::span<const TokenId> tokens, DeviceChoice device, DType dtype) {
  EngineOptions options = options_of(dtype);
  options.device = device;
  return test::logits_of(kWide, tokens, options);
}

class CudaHeadKinds : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaHeadKinds, GraphsGiveWhatEagerStepsGive) {
  test::expect_graphs_as_eager(kNarrow, options_of(DType::f32), kHeadPattern.staggered_requests(7));
}

TEST_F(CudaHeadKinds, LogitsAreThoseOfTheCpu) {
  const std::vector<TokenId> tokens = kHeadPattern.tokens(5, 250);
  const std::vector<float> expected = wide_logits(tokens, DeviceChoice::cpu, DType::f32);
  const double in_f32 = test::nmse(wide_logits(tokens, DeviceChoice::cuda, DType::f32), expected);
  const double in_bf16 = test::nmse(wide_logits(tokens, DeviceChoice::cuda, DType::bf16), expected);
  fmt::print("NMSE {:.2e} in f32, {:.2e} in bf16\n", in_f32, in_bf16);
  EXPECT_LT(in_f32, 1e-7);
  EXPECT_LT(in_bf16, 1e-3);
}

/// One token after the other, by the plans of both kinds, in batches of several sizes: the logits of generated tokens are the same as
/// those of a prompt of the same tokens.
TEST_F(CudaHeadKinds, DecodingGivesWhatPromptsGive) {
  for (const int32_t sequences : {1, 7}) {
    const EngineOptions options = options_of(DType::bf16);
    const std::vector<Request> requests = kHeadPattern.staggered_requests(sequences);
    const test::ServedModel served = test::serve(kWide, options, requests);
    EXPECT_GT(served.num_graphs, 20);
    const double root = test::logprobs_from_prompts(kWide, options, requests, served.answers);
    fmt::print("{} sequences: logprobs {:.1e} apart (root mean square)\n", sequences, root);
    EXPECT_LT(root, 0.05);
  }
}

}  // namespace
}  // namespace minfer
