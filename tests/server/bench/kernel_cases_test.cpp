// The cases of `minfer bench --kernels` against the decoder's own op table, and its output.
#include <set>

#include <gmock/gmock.h>

#include "engine/engine.h"
#include "server/bench/bench_kernels.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

constexpr const char* kLlama8b = "synthetic:llama-3.1-8b";

/// Cases with a synthetic model's shapes, on a GPU.
std::vector<KernelCase> cases_of(const std::string& model, std::string_view op, const KernelSizes& sizes) {
  const auto source = make_synthetic_model(model, [](std::string_view) { return false; });
  return KernelOps(*source, {DType::bf16, DType::bf16}).cases(op, sizes, true);
}

std::vector<int32_t> tokens_of(const std::vector<KernelCase>& cases) {
  std::vector<int32_t> tokens;
  for (const KernelCase& c : cases)
    tokens.push_back(c.tokens);
  return tokens;
}

TEST(KernelCases, ProductsGoThroughPowersOfTwo) {
  const std::vector<KernelCase> cases = cases_of(kLlama8b, "qkv", {});
  EXPECT_THAT(tokens_of(cases), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192));
  EXPECT_EQ(cases.front().shape(), "N 6144, K 4096");
  EXPECT_EQ(cases.back().work().flops, int64_t{2} * 8192 * 6144 * 4096);
  EXPECT_THAT(tokens_of(cases_of(kLlama8b, "qkv", {.tokens = {3, 7}, .contexts = {}})), ElementsAre(3, 7));
}

TEST(KernelCases, DecodeAttentionGoesThroughBatchesAndContexts) {
  std::set<std::pair<int32_t, int32_t>> sizes;
  for (const KernelCase& c : cases_of(kLlama8b, "attention_decode", {})) {
    sizes.insert({c.sequences, c.context});
    EXPECT_EQ(c.tokens, c.sequences);
    EXPECT_LE(int64_t{c.sequences} * c.context, 1 << 19);
    // K and V of the context in bf16, and the queries and outputs.
    EXPECT_EQ(c.work().bytes(), int64_t{c.sequences} * (c.context * 4096 + 2 * 4096 * 2));
  }
  EXPECT_TRUE(sizes.contains({1, 512}) && sizes.contains({16, 32768}) && sizes.contains({256, 2048}));
  EXPECT_FALSE(sizes.contains({256, 32768}));
}

TEST(KernelCases, SamplingGoesThroughWaysToDraw) {
  std::set<std::string> shapes;
  const KernelSizes sizes{.tokens = {256}, .contexts = {}};
  for (const KernelCase& c : cases_of(kLlama8b, "sample", sizes)) {
    shapes.insert(c.shape());
    EXPECT_EQ(c.work().bytes_read, int64_t{256} * 128256 * 4);
  }
  EXPECT_THAT(shapes, ElementsAre("128256 wide, greedy", "128256 wide, temperature 0.8",
                                  "128256 wide, top_k 50", "128256 wide, top_p 0.9"));
}

TEST(KernelCases, PrefillAttentionIsCausal) {
  const KernelSizes sizes{.tokens = {1024, 6}, .contexts = {}};
  const std::vector<KernelCase> cases = cases_of(kLlama8b, "attention_prefill", sizes);
  ASSERT_EQ(cases.size(), 3u);  // six tokens cannot be four prompts of equal length
  EXPECT_EQ(cases[0].work().flops, int64_t{4} * 4096 * 1024 * 1025 / 2);
  EXPECT_EQ(cases[1].sequences, 4);
  EXPECT_EQ(cases[1].work().flops, int64_t{4} * 4096 * 4 * 256 * 257 / 2);
}

TEST(KernelCases, AttentionGoesThroughTheWindowsOfTheLayers) {
  const auto windows = [](const char* model, int32_t context) {
    std::vector<int32_t> found;
    const KernelSizes sizes{.tokens = {1}, .contexts = {context}};
    for (const KernelCase& c : cases_of(model, "attention_decode", sizes))
      found.push_back(c.info.window.keys);
    return found;
  };
  EXPECT_THAT(windows("gemma-3-12b", 2048), ElementsAre(0, 1024));
  EXPECT_THAT(windows("gemma-3-12b", 1024), ElementsAre(0)) << "the window holds the whole context";
  EXPECT_THAT(windows("phi-3-mini", 4096), ElementsAre(2047));
  EXPECT_THAT(windows("llama-3.1-8b", 4096), ElementsAre(0));
}

TEST(KernelCases, AttentionHasTheHeadsOfEachKindOfLayer) {
  const std::string gemma = "gemma-4-31b";
  const KernelSizes sizes{.tokens = {8}, .contexts = {4096}};
  const std::vector<KernelCase> cases = cases_of(gemma, "attention_decode", sizes);
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_THAT(cases[0].shape(), HasSubstr("32/4 heads of 512"));
  EXPECT_EQ(cases[0].work().flops, int64_t{4} * 8 * 4096 * 32 * 512);
  EXPECT_THAT(cases[1].shape(), HasSubstr("32/16 heads of 256"));
  EXPECT_EQ(cases[1].work().flops, int64_t{4} * 8 * 1024 * 32 * 256);
  const KernelCase qkv = cases_of(gemma, "qkv", {.tokens = {1}, .contexts = {}})[0];
  EXPECT_EQ(qkv.info.out_features, 8192 + 2 * 4096) << "of the layer whose weights it has";
}

TEST(KernelCases, AttentionIsCappedWhereTheModelsIs) {
  const KernelSizes sizes{.tokens = {64}, .contexts = {}};
  for (const KernelCase& c : cases_of("gemma-2-9b", "attention_prefill", sizes)) {
    EXPECT_EQ(c.logit_cap, 50.0f);
    EXPECT_THAT(c.shape(), HasSubstr("16/8 heads of 256")) << "Gemma's";
    EXPECT_THAT(c.shape(), HasSubstr(", cap 50"));
  }
}

TEST(KernelCases, AnUnknownOpListsTheKnownOnes) {
  try {
    cases_of(kLlama8b, "moe_down", {});
    FAIL() << "a dense model has no experts";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"moe_down\""));
    EXPECT_THAT(error.what(), HasSubstr("gate_up_swiglu, ffn_down"));
  }
}

TEST(KernelCases, AFamilyHasTheOpsThatItsLayersRun) {
  const auto names = [](const char* model) {
    return KernelOps(*make_synthetic_model(model, [](std::string_view) { return false; }), {}).names();
  };
  EXPECT_THAT(names("gemma-3-12b"), IsSupersetOf({"rms_norm", "gate_up_swiglu"}));
  EXPECT_THAT(names("starcoder2-3b"), AllOf(Not(Contains("rms_norm")), Not(Contains("gate_up_swiglu"))))
      << "layer norms, no gate";
  EXPECT_THAT(names("command-r7b"), AllOf(Not(Contains("rms_norm")), Contains("gate_up_swiglu")));
}

/// Every op of a decoder's step has a case that moves and computes the same amount.
void expect_same_ops(const std::string& model) {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 64;
  options.threads = 1;
  Engine engine(open_model(model), options);
  const std::unique_ptr<ModelSource> source = open_model(model);
  const KernelOps ops(*source, {DType::f32, DType::f32});
  std::set<std::string> names;
  for (const OpInfo& info : engine.ops()) {
    if (info.kind == OpKind::transfer) continue;
    const std::string name = info.kind == OpKind::rms_norm ? "rms_norm" : info.name;
    names.insert(name);
    KernelCase c = ops.cases(name, {.tokens = {8}, .contexts = {32}}, false).front();
    c.info.weight_bytes = info.weight_bytes;
    OpInfo expected = info;
    expected.scope = c.info.scope;  // the scopes of norms differ
    EXPECT_EQ(c.info.kind, info.kind) << name;
    EXPECT_EQ(c.work().bytes_read, op_work(expected, c.batch_shape()).bytes_read) << name;
    EXPECT_EQ(c.work().bytes_written, op_work(expected, c.batch_shape()).bytes_written) << name;
    EXPECT_EQ(c.work().flops, op_work(expected, c.batch_shape()).flops) << name;
  }
  const std::vector<std::string> known = ops.names();
  EXPECT_EQ(names, std::set<std::string>(known.begin(), known.end()));
}

TEST(KernelCases, AreTheOpsOfADenseDecoder) {
  expect_same_ops("synthetic:tiny:q8_0");
}

TEST(KernelCases, AreTheOpsOfADecoderWithExperts) {
  expect_same_ops(source_path("tests/golden/qwen3moe.gguf"));
}

TEST(KernelCases, AreTheOpsOfLatentAttention) {
  expect_same_ops("synthetic:tiny-latent:q8_0");
}

class KernelBenchTest : public testing::Test {
 protected:
  KernelBenchTest() {
    setenv("MINFER_CEILINGS", "skip", 1);
    options.device = DeviceChoice::cpu;
    options.threads = 1;
  }
  EngineOptions options;
};

TEST_F(KernelBenchTest, MeasuresEveryOpOfAModelWithExperts) {
  const KernelBench bench = run_kernel_bench({.model = source_path("tests/golden/qwen3moe.gguf"),
                                              .ops = {},
                                              .sizes = {.tokens = {2}, .contexts = {8}},
                                              .repetitions = 1},
                                             options);
  std::set<std::string> measured;
  for (const KernelResult& result : bench.results) {
    measured.insert(result.kernel.info.name);
    EXPECT_GT(result.samples_us.size(), 1u);
    EXPECT_GT(result.median_us(), 0.0);
    EXPECT_FALSE(result.cublas_us.has_value());
  }
  EXPECT_EQ(measured.size(), 14u);
  EXPECT_EQ(kernel_table(bench).rows.size(), bench.results.size());
}

TEST_F(KernelBenchTest, FiguresFollowFromTheMedianAndTheWork) {
  KernelResult result{.kernel = cases_of(kLlama8b, "attn_output", {}).front(),
                      .weight_dtype = DType::bf16,
                      .samples_us = {20.0, 10.0, 40.0},
                      .cublas_us = 19.5};
  result.kernel.info.weight_bytes = 4096 * 4096 * 2;
  KernelBench bench;
  bench.ceilings = {4000.0, 8e5};
  bench.results = {result};
  const auto json = kernel_json(bench).front();
  const double bytes = 4096.0 * 4096 * 2 + 4096 * (2 + 4 + 4);
  EXPECT_EQ(json["op"], "attn_output");
  EXPECT_EQ(json["m"], 1);
  EXPECT_DOUBLE_EQ(json["us"], 20.0);
  EXPECT_DOUBLE_EQ(json["gbps"], bytes / 20e3);
  EXPECT_NEAR(json["roofline"], bytes / 4000e3 / 20.0, 1e-12);
  EXPECT_DOUBLE_EQ(json["cublaslt_us"], 19.5);
  EXPECT_THAT(kernel_table(bench).rows.front(),
              ElementsAre("attn_output", "N 4096, K 4096", "bf16", "1", "20.0", "11.0-38.0", "1680", "1.68",
                          "42 % memory", "19.5"));
}

TEST_F(KernelBenchTest, Fp8ProductsAreHeldAgainstTheirOwnCeiling) {
  KernelResult result{.kernel = cases_of(kLlama8b, "attn_output", {}).back(),
                      .weight_dtype = DType::fp8,
                      .samples_us = {400.0},
                      .cublas_us = std::nullopt};
  KernelBench bench;
  bench.ceilings = {4000.0, 8e5, 16e5};
  const auto flops = static_cast<double>(result.kernel.work().flops);
  EXPECT_EQ(bench.bound(result), "compute");
  EXPECT_NEAR(bench.roofline(result), flops / 8e8 / 400.0, 1e-12);
  result.kernel.info.fp8_products = true;
  EXPECT_EQ(bench.bound(result), "compute");
  EXPECT_NEAR(bench.roofline(result), flops / 16e8 / 400.0, 1e-12);
}

}  // namespace
}  // namespace minfer
