#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/decoder/weights/model_source.h"
#include "server/commands/inspect_report.h"

namespace minfer {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int64_t kPlanRows = 16, kPlanCols = 256;

HostTensor plan_tensor(DType dtype, int64_t count = 1) {
  return {"weight", nullptr, dtype, count, kPlanRows, kPlanCols};
}

TEST(MemoryPlan, HasTheSizesOfTheFileAndOfAGpu) {
  const std::array kept{plan_tensor(DType::q4_k), plan_tensor(DType::bf16), plan_tensor(DType::iq4_nl)};
  EXPECT_FALSE(weight_sizes(kept).is_converted);
  EXPECT_EQ(weight_sizes(kept).file_bytes, 16 * (144 + 512 + 144));
  EXPECT_EQ(weight_sizes(kept).cuda_bytes, 16 * (144 + 512 + 144));
  const std::array converted{plan_tensor(DType::q4_k), plan_tensor(DType::iq4_xs, 2)};
  EXPECT_TRUE(weight_sizes(converted).is_converted);
  EXPECT_EQ(weight_sizes(converted).file_bytes, 16 * (144 + 2 * 136));
  EXPECT_EQ(weight_sizes(converted).cuda_bytes, 16 * (144 + 2 * 512));
  EXPECT_EQ(weight_sizes({}).file_bytes, 0);
}

TEST(MemoryPlan, HasTheSizesOfWhatWeightsBecome) {
  std::array tensors{plan_tensor(DType::q4_k), plan_tensor(DType::bf16)};
  tensors[1].rows = 16 * 1024;
  tensors[1].quantise_to = DType::fp8;
  const WeightSizes sizes = weight_sizes(tensors);
  EXPECT_FALSE(sizes.is_converted);
  EXPECT_EQ(sizes.file_bytes, 16u * 144 + 16u * 1024 * 512);
  EXPECT_EQ(sizes.loaded_bytes, 16u * 144 + 16u * 1024 * 260);
  EXPECT_EQ(sizes.cuda_bytes, sizes.loaded_bytes);
  const ModelConfig config = open_model("synthetic:tiny:f32")->config();
  EXPECT_THAT(memory_plan_table(config, tensors), HasSubstr("weights 4.06 MiB (8.00 MiB in the file), and"));
  EXPECT_EQ(memory_plan_json(config, tensors)["weight_bytes"], sizes.loaded_bytes);
  EXPECT_EQ(memory_plan_json(config, tensors)["file_weight_bytes"], sizes.file_bytes);
}

TEST(MemoryPlan, SaysWhatStatesOfSequencesTake) {
  const ModelConfig config = synthetic_config("synthetic:qwen3-next-80b-a3b");
  // 36 layers: in each a matrix [128, 128] for each of 32 heads, and three inputs of 8,192 channels.
  constexpr size_t kSlot = 36 * ((size_t{2} << 20) + (size_t{96} << 10));
  EXPECT_THAT(memory_plan_table(config, {}),
              HasSubstr("states: 75.38 MiB for each running sequence, whatever its length (19296.00 MiB with "
                        "--max-num-seqs 256), and for each copy of the prefix cache (--num-state-copies)"));
  const auto plan = memory_plan_json(config, {});
  EXPECT_EQ(plan["state_bytes_per_sequence"], kSlot);
  EXPECT_EQ(plan["kv_bytes_per_token"]["bf16"], 24u << 10) << "of the twelve layers that attend";
  const ModelConfig plain = synthetic_config("synthetic:tiny");
  EXPECT_THAT(memory_plan_table(plain, {}), Not(HasSubstr("states")));
  EXPECT_FALSE(memory_plan_json(plain, {}).contains("state_bytes_per_sequence"));
}

TEST(MemoryPlan, ShowsBothWhereAGpuConverts) {
  const ModelConfig config = open_model("synthetic:tiny:f32")->config();
  std::array tensors{plan_tensor(DType::q4_k), plan_tensor(DType::iq4_xs, 2)};
  tensors[1].rows = 8 * 1024;
  EXPECT_THAT(memory_plan_table(config, tensors), HasSubstr("weights 2.13 MiB (8.00 MiB on a GPU), and"));
  const auto plan = memory_plan_json(config, tensors);
  EXPECT_EQ(plan["weight_bytes"], 16 * 144 + 16 * 1024 * 136);
  EXPECT_EQ(plan["cuda_weight_bytes"], 16 * 144 + 16 * 1024 * 512);
  tensors[1].count = 1;
  EXPECT_THAT(memory_plan_table(config, tensors), Not(HasSubstr("GPU")));
  tensors[1].dtype = DType::q8_0;
  EXPECT_THAT(memory_plan_table(config, tensors), Not(HasSubstr("GPU")));
}

TEST(MemoryPlan, CountsWhatLayersWithWindowsKeep) {
  const ModelConfig config = synthetic_config("gemma-3-12b");
  const auto plan = memory_plan_json(config, {});
  EXPECT_EQ(plan["kv_bytes_per_token"]["bf16"], 48 * 2 * 8 * 256 * 2);
  // Blocks of 5 MiB: for 131,072 tokens of 8 layers, and for the window of the others.
  EXPECT_EQ(plan["kv_bytes_full_context"]["bf16"], int64_t{1639 + 65} * (5 << 20));
  EXPECT_THAT(memory_plan_table(config, {}), HasSubstr("8520.00 MiB"));
}

}  // namespace
}  // namespace minfer
