// Kimi delta attention beside latent attention in files: keys, the tensors of a layer, its memory, its share of a model, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/work.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/shard.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using ::testing::Contains;
using ::testing::HasSubstr;

ModelParts kimi_parts() {
  return test::tiny_model("kimi-linear", 4);
}

/// A model in memory, and the parts that it was read from.
struct KimiModel {
  explicit KimiModel(const ModelParts& parts)
      : bytes(parts.build()), source(open_model_in_memory(bytes, "model.gguf")) {}
  const ModelConfig& config() const { return source->config(); }

  std::vector<std::byte> bytes;
  std::unique_ptr<ModelSource> source;
};

std::string kimi_refusal(const ModelParts& parts) {
  return test::refusal_of<FileError>([&] { load_weights(*KimiModel(parts).source, *make_cpu_backend(1)); });
}

TEST(KimiDeltaModel, LayersWithoutKvHeadsHaveStates) {
  const KimiModel model(kimi_parts());
  const ModelConfig& config = model.config();
  EXPECT_EQ(config.delta_net, (DeltaNetShape{.key_heads = 4,
                                             .value_heads = 4,
                                             .key_size = 6,
                                             .value_size = 6,
                                             .conv_size = 3,
                                             .decays_rows = true}));
  EXPECT_EQ(config.delta_net.alphas(), 24);
  EXPECT_TRUE(config.is_delta_net(0) && config.attends(1) && config.is_latent());
  EXPECT_EQ(config.num_state_layers(), 1);
  EXPECT_EQ(config.qkv_size(0), 72 + 2 * 6 + 4) << "channels, vectors for alphas and gates, betas";
  EXPECT_EQ(config.output_size(0), 24);
  EXPECT_EQ(config.kv_size(0), 0);
  EXPECT_EQ(config.kv_size(1), 20) << "a row of the cache";
  EXPECT_EQ(config.qkv_size(1), 4 * 12 + 20);
  for (int32_t layer = 0; layer < 2; ++layer)
    EXPECT_EQ(config.layer(layer).rope, LayerConfig::kNoRope);
  EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(12.0f));
  EXPECT_EQ(config.expert_choice.score, ExpertScore::sigmoid);
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(config))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  EXPECT_THAT(facts, Contains("Kimi delta attention, 4 heads of 6, convolution over 3 tokens: 0"));
  EXPECT_THAT(facts, Contains("attention, full, no positions: 1"));
}

TEST(KimiDeltaModel, KeysOutOfRangeAreRefusedByName) {
  const std::string arch = "kimi-linear.";
  for (const auto& [key, value, refusal] :
       {std::tuple{"kda.head_dim", 0u, "kda.head_dim is 0, expected 1 to 1024"},
        {"kda.head_dim", 1025u, "kda.head_dim is 1025, expected 1 to 1024"},
        {"ssm.conv_kernel", 1u, "ssm.conv_kernel is 1, expected 2 to 16"},
        {"ssm.conv_kernel", 17u, "ssm.conv_kernel is 17, expected 2 to 16"},
        {"attention.head_count", 0u, "attention.head_count is 0, expected 1 to 4096"},
        {"attention.key_length", 21u, "attention.key_length is 21, expected 20"},
        {"expert_count", 0u, "expert_count is 0, expected at least 1 of architecture kimi-linear"}}) {
    ModelParts parts = kimi_parts();
    parts.keys[arch + key] = value;
    EXPECT_THAT(kimi_refusal(parts), HasSubstr(refusal));
    if (std::string_view(key) == "attention.key_length" || std::string_view(key) == "expert_count") continue;
    parts.keys.erase(arch + key);
    EXPECT_THAT(kimi_refusal(parts), HasSubstr(fmt::format("{} is missing", key)));
  }
  for (const auto& [kv_heads, refusal] :
       {std::pair{std::vector<int32_t>{0, 0}, "head_count_kv is 0 in all layers"},
        {{0, 2}, "head_count_kv is 2, expected 1 or 4 of latent attention"},
        {{0, 1, 1}, "head_count_kv has 3 elements, expected one for each of 2 layers"},
        {{0, -1}, "head_count_kv is -1, expected 0 to 4096"}}) {
    ModelParts parts = kimi_parts();
    parts.keys[arch + "attention.head_count_kv"] = kv_heads;
    EXPECT_THAT(kimi_refusal(parts), HasSubstr(refusal));
  }
}

TEST(KimiDeltaModel, TensorsAreHeldAgainstTheConfiguration) {
  EXPECT_EQ(kimi_refusal(kimi_parts()), "");
  for (const auto& [tensor, dims, expected] :
       {std::tuple{"attn_q.weight", std::vector<uint64_t>{32, 25},
                   "expected [24, 32] from kimi-linear.kda.head_dim"},
        {"ssm_conv1d_k.weight", {4, 1, 24}, "expected [24, 1, 3] from kimi-linear.attention.head_count"},
        {"ssm_conv1d_v.weight",
         {3, 1, 23},
         "tensor blk.0.ssm_conv1d_v.weight: shape [23, 1, 3], expected [24, 1, 3]"},
        {"ssm_conv1d_q.weight", {3, 2, 12}, "tensor blk.0.ssm_conv1d_q.weight: shape [12, 2, 3]"},
        {"ssm_f_a.weight", {32, 7}, "expected [6, 32]"},
        {"ssm_g_b.weight", {7, 24}, "expected [24, 6]"},
        {"ssm_beta.weight", {32, 5}, "expected [4, 32] from kimi-linear.attention.head_count"},
        {"ssm_dt.bias", {4}, "expected [24]"},
        {"ssm_a", {4}, "expected [4, 1]"},
        {"ssm_norm.weight", {24}, "expected [6]"},
        {"attn_output.weight", {32, 32}, "expected [32, 24]"}}) {
    ModelParts parts = kimi_parts();
    const std::string name = fmt::format("blk.0.{}", tensor);
    ASSERT_EQ(parts.tensors.count(name), 1u) << name;
    parts.tensors[name] = {DType::f32, dims, {}};
    EXPECT_THAT(kimi_refusal(parts), HasSubstr(expected)) << tensor;
    parts.tensors.erase(name);
    EXPECT_THAT(kimi_refusal(parts), HasSubstr(fmt::format("tensor {} is missing", name)));
  }
  ModelParts parts = kimi_parts();
  parts.tensors["blk.1.ssm_f_a.weight"] = parts.tensors["blk.0.ssm_f_a.weight"];
  EXPECT_THAT(kimi_refusal(parts), HasSubstr("tensor blk.1.ssm_f_a.weight is not part of architecture"));
}

/// A file has the three convolutions apart, as [channels, 1, conv_size] or [channels, conv_size], and perhaps in a narrow type.
TEST(KimiDeltaModel, ConvolutionsOfQueriesKeysAndValuesBecomeOne) {
  ModelParts parts = kimi_parts();
  const KimiModel wide(parts);
  parts.tensors["blk.0.ssm_conv1d_k.weight"].dims = {3, 24};
  parts.tensors["blk.0.ssm_conv1d_v.weight"].dtype = DType::f16;
  const KimiModel narrow(parts);
  const GgufFile file = GgufFile::from_memory(wide.bytes, "model.gguf");
  const HostTensor* joined = wide.source->find_tensor("blk.0.ssm_conv1d.weight");
  const HostTensor* of_narrow = narrow.source->find_tensor("blk.0.ssm_conv1d.weight");
  ASSERT_TRUE(joined != nullptr && of_narrow != nullptr);
  EXPECT_EQ(joined->shape(), (std::vector<int64_t>{72, 3}));
  EXPECT_EQ(wide.source->find_tensor("blk.0.ssm_conv1d_q.weight"), nullptr);
  const auto* values = static_cast<const float*>(joined->data);
  const auto* narrow_values = static_cast<const float*>(of_narrow->data);
  for (const auto& [part, first] : {std::pair{"q", 0}, {"k", 24 * 3}, {"v", 48 * 3}}) {
    const auto* in_file =
        static_cast<const float*>(file.find_tensor(fmt::format("blk.0.ssm_conv1d_{}.weight", part))->data);
    for (int i = 0; i < 24 * 3; ++i) {
      EXPECT_EQ(values[first + i], in_file[i]) << part << i;
      EXPECT_NEAR(narrow_values[first + i], in_file[i], 2e-3f) << part << i;
    }
  }
}

TEST(KimiDeltaModel, StatesAndRowsOfTheCacheHaveMemoryOfTheirOwn) {
  const KimiModel model(kimi_parts());
  const auto backend = make_cpu_backend(1);
  EXPECT_EQ(RecurrentStatePool::slot_bytes(model.config()), (4 * 36 + 2 * 72) * sizeof(float));
  const KvCache kv(*backend, model.config(), {}, DType::f32, 4, 16);
  EXPECT_EQ(kv.layer(0).k, nullptr);
  EXPECT_EQ(kv.bytes(), 4 * 16 * 20 * sizeof(float)) << "one row a token of one layer";
}

TEST(KimiDeltaModel, OpsAreCountedByTheProfile) {
  const KimiModel model(kimi_parts());
  const auto backend = make_cpu_backend(1);
  const KvCache kv(*backend, model.config(), {}, DType::f32, 4, 16);
  const RecurrentStatePool states(*backend, model.config(), 2);
  const Decoder decoder(model.config(), load_weights(*model.source, *backend), *backend, kv, states,
                        {.max_tokens = 16, .logit_slice = 4, .max_positions = 64});
  BatchShape shape;
  shape.add_sequence(true, 20, 1, 1);
  shape.add_sequence(false, 7, 7, 1);
  const auto work = [&](std::string_view name) {
    const auto found = std::ranges::find(decoder.ops(), name, &OpInfo::name);
    EXPECT_NE(found, decoder.ops().end()) << name;
    EXPECT_EQ(found->layer, 0);
    return op_work(*found, shape);
  };
  EXPECT_EQ(work("delta_in").flops, 8 * 2 * 32 * 88);
  EXPECT_EQ(work("delta_alpha").flops, 8 * 2 * 6 * 24);
  EXPECT_EQ(work("delta_z").flops, 8 * 2 * 6 * 24);
  const KernelWork rule = work("delta_rule");
  EXPECT_EQ(rule.bytes_read, (8 * (72 + 4 + 24) + 2 * 4 * 36 + 24 + 4) * 4)
      << "inputs, states, numbers of heads";
  EXPECT_EQ(rule.bytes_written, (8 * 24 + 2 * 4 * 36) * 4);
  EXPECT_EQ(rule.flops, 8 * 7 * 4 * 36);
  EXPECT_EQ(work("delta_out").flops, 8 * 2 * 24 * 32);
}

/// A rank has some heads, in each part of the tensors; the small vectors are whole.
TEST(KimiDeltaModel, RanksHaveHeads) {
  const KimiModel model(kimi_parts());
  const auto rows = [](const HostTensor& tensor, int64_t first, int64_t count) {
    const auto* data = static_cast<const float*>(tensor.data);
    const int64_t cols = tensor.rows == 1 ? 1 : tensor.cols;
    return std::vector<float>(data + first * cols, data + (first + count) * cols);
  };
  for (int32_t rank = 0; rank < 2; ++rank) {
    const ModelShard shard(*model.source, {rank, 2});
    EXPECT_EQ(shard.config().delta_net.key_heads, 2);
    EXPECT_EQ(shard.config().delta_net.alphas(), 12);
    EXPECT_EQ(shard.config().gate_rank(), 6);
    const auto expect_rows = [&](const char* name, int64_t own, int64_t of_model, int64_t count) {
      const std::string tensor = fmt::format("blk.0.{}", name);
      EXPECT_EQ(rows(*shard.find_tensor(tensor), own, count),
                rows(*model.source->find_tensor(tensor), of_model, count))
          << name;
    };
    for (const char* name : {"attn_q.weight", "attn_k.weight", "attn_v.weight", "ssm_f_b.weight",
                             "ssm_g_b.weight", "ssm_dt.bias"})
      expect_rows(name, 0, 12 * rank, 12);
    for (int64_t part = 0; part < 3; ++part)
      expect_rows("ssm_conv1d.weight", 12 * part, 24 * part + 12 * rank, 12);
    for (const char* name : {"ssm_beta.weight", "ssm_a"})
      expect_rows(name, 0, 2 * rank, 2);
    for (const char* name : {"ssm_f_a.weight", "ssm_g_a.weight", "ssm_norm.weight"})
      expect_rows(name, 0, 0, 6);
    EXPECT_EQ(shard.find_tensor("blk.0.attn_output.weight")->cols, 12);
    EXPECT_EQ(load_weights(shard, *make_cpu_backend(1)).layers.size(), 2u);
  }
}

TEST(KimiDeltaModel, RunsOnCuda) {
  EXPECT_NO_THROW(check_shapes(*KimiModel(kimi_parts()).source, cuda::shape_limits(DType::bf16), "cuda"));
  ModelParts parts = kimi_parts();
  parts.keys["kimi-linear.kda.head_dim"] = 257u;
  for (const char* part : {"q", "k", "v"})
    parts.tensors[fmt::format("blk.0.ssm_conv1d_{}.weight", part)].dims = {3, 1, 4 * 257};
  EXPECT_THAT(test::refusal_of<FileError>(
                  [&] { check_shapes(*KimiModel(parts).source, cuda::shape_limits(DType::bf16), "cuda"); }),
              HasSubstr("kda.head_dim: 257, expected at most 256"));
}

/// The shape of Kimi-Linear-48B-A3B: which layers attend, and how large the model is.
TEST(KimiDeltaModel, ASyntheticModelHasThePublishedLayers) {
  const ModelConfig config = synthetic_config("synthetic:kimi-linear-48b-a3b:bf16");
  std::vector<int32_t> attending;
  for (int32_t layer = 0; layer < config.num_layers; ++layer)
    if (config.attends(layer)) attending.push_back(layer);
  EXPECT_THAT(attending, ::testing::ElementsAre(3, 7, 11, 15, 19, 23, 26));
  EXPECT_EQ(config.kv_size(3), 576);
  EXPECT_EQ(config.qkv_size(0), 3 * 4096 + 2 * 128 + 32);
  EXPECT_TRUE(config.delta_net.decays_rows);
}

}  // namespace
}  // namespace minfer
