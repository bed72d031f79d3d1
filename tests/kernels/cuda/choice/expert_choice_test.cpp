#include "kernels/cuda/choice/expert_choice.h"

#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

TEST(ExpertChoice, StreamsWhereExpertsHaveManyRoutes) {
  for (const DType type : {DType::bf16, DType::q4_k}) {
    for (const int64_t experts : {1, 8, 32, 128, 512}) {
      int32_t last = 0;
      for (int64_t routes = 0; routes <= 200 * experts; ++routes) {
        const int32_t tile = expert_token_tile(type, routes, experts);
        EXPECT_TRUE(tile == 0 || tile == 32 || tile == 64 || tile == 128);
        EXPECT_GE(tile, last) << routes << " routes of " << experts << " experts";
        last = tile;
      }
      EXPECT_EQ(last, 128);
    }
    EXPECT_EQ(expert_token_tile(type, 0, 1), 0);
    EXPECT_EQ(expert_token_tile(type, 8, 128), 0) << "one token";
    EXPECT_EQ(expert_token_tile(type, 64 * 8, 128), 32);
    EXPECT_EQ(expert_token_tile(type, 512 * 8, 128), 64);
    EXPECT_EQ(expert_token_tile(type, 2048 * 8, 128), 128);
    EXPECT_EQ(expert_token_tile(type, 2048 * 2, 8), 128);
  }
  EXPECT_EQ(expert_token_tile(DType::bf16, 16 * 8, 128), 32);
  EXPECT_EQ(expert_token_tile(DType::q4_k, 16 * 8, 128), 0);
}

TEST(ExpertChoice, GoesByRoutesOfAnExpertInTheMean) {
  // Qwen3-30B-A3B: 128 experts of 768 x 2,048; a token uses eight of them.
  const auto of = [](ExpertShape shape, int64_t tokens, const DeviceFacts& device = kH200) {
    return choose_experts(shape, tokens, 8, device);
  };
  const ExpertShape quantised{.weight = DType::q4_k, .rows = 768, .cols = 2048, .experts = 128};
  EXPECT_EQ(of(quantised, 1).kernel, ExpertKernel::vector);
  EXPECT_EQ(of(quantised, 4).kernel, ExpertKernel::vector) << "32 routes";
  EXPECT_EQ(of(quantised, 5).kernel, ExpertKernel::expert_strip);
  EXPECT_EQ(of(quantised, 5).batch_routes, 16);
  EXPECT_EQ(of(quantised, 160).kernel, ExpertKernel::expert_strip) << "ten of sixteen";
  EXPECT_EQ(of(quantised, 161).kernel, ExpertKernel::stream);
  EXPECT_EQ(of(quantised, 161).batch_routes, 32);
  EXPECT_EQ(of(quantised, 2048).batch_routes, 128);
}

TEST(ExpertChoice, AnyGpuAndAnyTypeHasAKernel) {
  DeviceFacts other = kH200;
  other.has_wgmma = false;
  const ExpertShape bf16{.weight = DType::bf16, .rows = 768, .cols = 2048, .experts = 128};
  EXPECT_EQ(choose_experts(bf16, 64, 8, kH200).kernel, ExpertKernel::stream);
  EXPECT_EQ(choose_experts(bf16, 64, 8, other).kernel, ExpertKernel::strip);
  for (const auto change :
       {+[](ExpertShape& s) { s.x = DType::f32; }, +[](ExpertShape& s) { s.cols = 2044; },
        +[](ExpertShape& s) { s.weight = DType::q3_k; }, +[](ExpertShape& s) { s.x_is_aligned = false; }}) {
    ExpertShape odd = bf16;
    change(odd);
    EXPECT_EQ(choose_experts(odd, 64, 8, kH200).kernel, ExpertKernel::rows);
  }
}

}  // namespace
}  // namespace minfer::cuda
