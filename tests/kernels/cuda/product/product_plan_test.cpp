#include "kernels/tuning/product_plan.h"

#include <algorithm>

#include <gmock/gmock.h>

namespace minfer::cuda {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

const PlanDevice kH200{.name = "NVIDIA H200", .major = 9, .minor = 0, .multiprocessors = 132};
const PlanDevice kA10{.name = "NVIDIA A10", .major = 8, .minor = 6, .multiprocessors = 72};

std::vector<std::string> candidates(const ProductShape& shape, int64_t tokens,
                                    const PlanDevice& device = kH200) {
  std::vector<std::string> texts;
  for (const ProductPlan& plan : product_candidates(shape, tokens, device))
    texts.push_back(to_string(plan));
  return texts;
}

TEST(ProductPlan, SaysItself) {
  for (const char* text :
       {"automatic", "panel", "tile_vector", "tile_panel", "tile_block", "cublaslt", "dequantise",
        "stream:64x128/line", "stream:256x128/rounds", "tile_stream:8x64/3"}) {
    const std::optional<ProductPlan> plan = product_plan_from(text);
    ASSERT_TRUE(plan) << text;
    EXPECT_EQ(to_string(*plan), text);
  }
  const ProductPlan plan = product_plan_from("tile_stream:8x64/3").value();
  EXPECT_EQ(plan.kernel, ProductKernel::tile_stream);
  EXPECT_EQ(plan.tiles.token_tile, 8);
  EXPECT_EQ(plan.tiles.warpgroups, 1);
  EXPECT_EQ(plan.tiles.splits, 3);
  EXPECT_FALSE(plan.tiles.by_rounds);
}

TEST(ProductPlan, HasTheBlocksOfTheRules) {
  for (const int64_t rows : {1024, 4096, 6144, 14336, 128256}) {
    for (const int64_t tokens : {1, 16, 64, 128, 200, 300, 2048}) {
      for (const bool gate_up : {false, true}) {
        const StreamPlan rule = stream_plan(rows, 4096, tokens, gate_up, 132);
        const ProductPlan plan{.kernel = ProductKernel::stream, .tiles = rule};
        EXPECT_EQ(stream_plan_of(plan, rows, tokens, gate_up, 132).blocks, rule.blocks) << to_string(plan);
      }
    }
  }
}

TEST(ProductCandidates, HaveThePlansOfTheRules) {
  for (const int64_t tokens : {3, 8, 30, 64, 128, 256, 512, 2048}) {
    for (const ProductOp op : {ProductOp::linear, ProductOp::linear_add, ProductOp::gate_up}) {
      for (const int64_t rows : {1024, 4096, 6144, 14336, 128256}) {
        const bool gate_up = op == ProductOp::gate_up;
        for (const DType type : {DType::bf16, DType::q4_k}) {
          const bool bf16 = type == DType::bf16;
          const StreamPlan rule = bf16 ? stream_plan(rows, 4096, tokens, gate_up, 132)
                                       : tile_stream_plan(rows, 4096, tokens, gate_up, 132);
          ProductPlan plan{.kernel = bf16 ? ProductKernel::stream : ProductKernel::tile_stream,
                           .tiles = rule};
          // Rounds of one tile a block are a line, which is what stands for both.
          const auto tile_rows = int64_t{rule.warpgroups} * kWarpgroupRows;
          const int64_t tiles = ((gate_up ? 2 * rows : rows) + tile_rows - 1) / tile_rows *
                                ((tokens + rule.token_tile - 1) / rule.token_tile);
          if (tiles <= 132) plan.tiles.by_rounds = false;
          EXPECT_THAT(candidates({type, op, rows, 4096}, tokens), Contains(to_string(plan)));
        }
      }
    }
  }
}

TEST(ProductCandidates, AreDifferentAndCanBe) {
  for (const PlanDevice& device : {kH200, kA10}) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16, DType::q8_0, DType::q4_k, DType::fp8}) {
      for (const ProductOp op : {ProductOp::linear, ProductOp::linear_add, ProductOp::gate_up}) {
        for (const int64_t rows : {4, 36, 1024, 14336}) {
          for (const int64_t cols : {4, 64, 200, 4096}) {
            for (const int64_t tokens : {1, 2, 7, 9, 100, 129, 300, 5000}) {
              const ProductShape shape{type, op, rows, cols};
              const std::vector<ProductPlan> plans = product_candidates(shape, tokens, device);
              ASSERT_FALSE(plans.empty());
              EXPECT_EQ(plans.front(), ProductPlan{});
              for (size_t i = 0; i < plans.size(); ++i) {
                EXPECT_EQ(refusal(plans[i], shape, tokens, device), "");
                EXPECT_EQ(std::count(plans.begin(), plans.end(), plans[i]), 1) << to_string(plans[i]);
                if (!plans[i].has_tiles()) continue;
                const StreamPlan tiles =
                    stream_plan_of(plans[i], rows, tokens, op == ProductOp::gate_up, device.multiprocessors);
                EXPECT_GE(tiles.blocks, 1);
                EXPECT_LE(tiles.blocks, device.multiprocessors);
              }
            }
          }
        }
      }
    }
  }
}

TEST(ProductCandidates, AreThoseOfTheTypeAndTheDevice) {
  const ProductShape bf16{DType::bf16, ProductOp::linear, 4096, 4096},
      q4_k{DType::q4_k, ProductOp::linear, 4096, 4096};
  EXPECT_THAT(candidates(bf16, 1, kA10), ElementsAre("automatic", "panel", "cublaslt"));
  EXPECT_THAT(candidates(bf16, 9, kA10), ElementsAre("automatic", "cublaslt"));
  EXPECT_THAT(candidates(q4_k, 1, kA10), ElementsAre("automatic", "tile_vector"));
  EXPECT_THAT(candidates(q4_k, 8, kA10), ElementsAre("automatic", "tile_panel", "tile_block"));
  EXPECT_THAT(candidates(q4_k, 64, kA10), ElementsAre("automatic", "tile_block", "dequantise"));
  const ProductShape q3_k{DType::q3_k, ProductOp::linear, 4096, 4096};  // rare: two kernels
  EXPECT_THAT(candidates(q3_k, 1, kA10), ElementsAre("automatic", "tile_vector"));
  EXPECT_THAT(candidates(q3_k, 64, kA10), ElementsAre("automatic", "dequantise"));
  EXPECT_THAT(candidates(q4_k, 300, kA10), ElementsAre("automatic", "dequantise"));
  EXPECT_THAT(candidates({DType::f16, ProductOp::linear, 4096, 4096}, 8), ElementsAre("automatic"));
  EXPECT_THAT(candidates(bf16, 8),
              ElementsAre("automatic", "panel", "cublaslt", "stream:8x64/line", "stream:8x64/2",
                          "stream:8x128/line", "stream:8x128/2", "stream:8x128/3", "stream:8x128/4"));
  EXPECT_THAT(candidates(bf16, 2048), Contains("stream:256x128/rounds"));
  EXPECT_THAT(candidates(bf16, 2048), Not(Contains("stream:256x64/rounds")));
  EXPECT_THAT(candidates(q4_k, 2048),
              IsSupersetOf({"tile_stream:256x128/rounds", "tile_stream:128x128/rounds"}));
}

TEST(ProductPlan, SaysWhyItCannotBe) {
  const ProductShape bf16{DType::bf16, ProductOp::linear, 4096, 4096},
      q4_k{DType::q4_k, ProductOp::gate_up, 4096, 4096};
  const auto why = [](const char* text, const ProductShape& shape, int64_t tokens,
                      const PlanDevice& device = kH200) {
    return refusal(product_plan_from(text).value(), shape, tokens, device);
  };
  EXPECT_EQ(why("automatic", bf16, 1), "");
  EXPECT_THAT(why("panel", bf16, 9),
              HasSubstr("panel is for bf16, columns that divide by 8 and 1 to 8 tokens"));
  EXPECT_THAT(why("stream:8x64/line", bf16, 8, kA10), HasSubstr("compute capability 9.0"));
  EXPECT_THAT(why("stream:8x64/line", q4_k, 8), HasSubstr("stream is for bf16"));
  EXPECT_THAT(why("tile_stream:8x64/line", bf16, 8), HasSubstr("tile_stream is for quantised"));
  EXPECT_THAT(why("tile_stream:256x64/line", q4_k, 8),
              HasSubstr("tiles of 64 rows, expected 128 with tiles of 256 tokens"));
  EXPECT_THAT(why("tile_stream:512x128/line", q4_k, 8),
              HasSubstr("tiles of 512 tokens, expected a power of two from 8 to 256"));
  EXPECT_THAT(why("stream:24x64/line", bf16, 8), HasSubstr("tiles of 24 tokens"));
  EXPECT_THAT(why("stream:8x192/line", bf16, 8), HasSubstr("tiles of 192 rows, expected 64 or 128"));
  EXPECT_THAT(why("stream:256x64/line", bf16, 8), HasSubstr("expected 128"));
  EXPECT_THAT(why("stream:8x64/5", bf16, 8), HasSubstr("5 splits, expected at most 4"));
  EXPECT_THAT(why("stream:256x128/2", bf16, 8), HasSubstr("expected none with tiles of 256"));
  EXPECT_THAT(why("stream:8x128/2", bf16, 9),
              HasSubstr("splits with 9 tokens, expected no more than a tile's 8"));
  EXPECT_THAT(why("stream:8x128/2", {DType::bf16, ProductOp::linear, 4096, 128}, 8),
              HasSubstr("2 splits of 128 columns"));
  EXPECT_THAT(why("stream:8x64/4", bf16, 8), HasSubstr("4 splits of more tiles than fit"));
  EXPECT_THAT(why("cublaslt", {DType::bf16, ProductOp::linear, 0, 128}, 8), HasSubstr("a product of 0 rows"));
}

}  // namespace
}  // namespace minfer::cuda
