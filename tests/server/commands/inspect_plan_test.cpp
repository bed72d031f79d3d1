// The output of `minfer inspect --plan` for models whose weights are missing.
#include <gmock/gmock.h>

#include "kernels/base/error.h"
#include "server/commands/inspect_report.h"

namespace minfer {
namespace {

using testing::HasSubstr;

using PlanJson = nlohmann::ordered_json;

std::unique_ptr<ModelSource> shapes_of(const std::string& model) {
  return make_synthetic_model(model, [](std::string_view) { return false; });
}

PlanJson plan_of(const std::string& model, int32_t tokens, std::optional<DType> quantization = {}) {
  return plan_json(*shapes_of(model), {.tokens = {tokens}, .quantization = quantization}).front();
}

/// The first op of that name; null if there is none.
PlanJson op_of(const PlanJson& plan, std::string_view name) {
  for (const PlanJson& op : plan.at("ops")) {
    if (op.at("op") == name) return op;
  }
  return {};
}

TEST(InspectPlan, HasWhatADeviceComputesTogether) {
  const PlanJson one = plan_of("llama-3.1-8b:q4_k", 1);
  EXPECT_TRUE(op_of(one, "attn_norm").is_null()) << "in qkv";
  EXPECT_EQ(op_of(one, "qkv").at("kernel"), "tile_vector");
  EXPECT_EQ(op_of(one, "qkv").at("tile"), "16 x 1");
  EXPECT_EQ(op_of(one, "qkv").at("layers"), 32);
  EXPECT_EQ(op_of(one, "attention_decode").at("kernel"), "attention_decode");
  const PlanJson many = plan_of("llama-3.1-8b:q4_k", 2048);
  EXPECT_EQ(op_of(many, "attn_norm").at("layers"), 32);
  EXPECT_EQ(op_of(many, "gate_up_swiglu").at("kernel"), "tile_stream");
  EXPECT_EQ(op_of(many, "gate_up_swiglu").at("tile"), "128 x 256");
  EXPECT_EQ(op_of(many, "attention_prefill").at("kernel"), "attention_prefill_wgmma");
  const PlanJson fp8 = plan_of("llama-3.1-8b:bf16", 2048, DType::fp8);
  EXPECT_EQ(op_of(fp8, "ffn_down").at("kernel"), "fp8_gemm");
  EXPECT_EQ(op_of(fp8, "lm_head").at("kernel"), "stream") << "matrices of layers alone are FP8";
}

TEST(InspectPlan, TimesAreTheSumsOfTheOpsThatRun) {
  const PlanJson plan = plan_of("llama-3.1-8b:bf16", 8);
  double decode_us = 0.0;
  for (const PlanJson& op : plan.at("ops")) {
    EXPECT_GT(op.at("us"), 0.0) << op;
    if (op.at("op") != "attention_prefill")
      decode_us += op.at("layers").get<double>() * op.at("us").get<double>();
  }
  EXPECT_NEAR(plan.at("decode_us").get<double>(), decode_us, 1e-6 * decode_us);
  // Weights of 15 GB at 4.55 TB/s, but not twice that.
  EXPECT_GT(decode_us, 3300.0);
  EXPECT_LT(decode_us, 6600.0);
}

TEST(InspectPlan, ExpertsStatesAndLatentAttentionHaveTheirKernels) {
  const PlanJson experts = plan_of("qwen3-30b-a3b:q4_k", 8);
  EXPECT_EQ(op_of(experts, "moe_down").at("kernel"), "expert_strip");
  EXPECT_EQ(op_of(experts, "moe_down").at("scratch_bytes"), 8 * 8 * 2048 * 4)
      << "sums of routes before they are added up";
  EXPECT_EQ(op_of(plan_of("qwen3-30b-a3b:q4_k", 1), "moe_down").at("scratch_bytes"), 0);
  EXPECT_EQ(op_of(plan_of("qwen3.5-9b:q4_k", 1), "delta_rule").at("layers"), 24);
  EXPECT_EQ(op_of(plan_of("deepseek-v2-lite:q4_k", 64), "attention_decode").at("kernel"), "attention_latent");
}

TEST(InspectPlan, ATableHasALineForEachOp) {
  const PlanOptions options{.tokens = {1, 8}};
  const std::string text = plan_tables(plan_json(*shapes_of("tiny:q8_0"), options), options);
  EXPECT_THAT(text, HasSubstr("\n1 token: decoding 1 x 1024 "));
  EXPECT_THAT(text, HasSubstr("\n8 tokens: decoding 8 x 1024 "));
  EXPECT_THAT(text, HasSubstr("\nffn_down"));
}

}  // namespace
}  // namespace minfer
