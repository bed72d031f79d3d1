// Mamba-2 in files: keys, the tensors of a layer, its memory, its share of a model, layers of one block, and refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/work.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/decoder.h"
#include "models/decoder/weights/shard.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/paths.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::Contains;
using ::testing::HasSubstr;

/// A model in memory, and the parts that it was read from.
struct MambaModel {
  explicit MambaModel(const ModelParts& parts)
      : bytes(parts.build()), source(open_model_in_memory(bytes, "model.gguf")) {}
  const ModelConfig& config() const { return source->config(); }

  std::vector<std::byte> bytes;
  std::unique_ptr<ModelSource> source;
};

std::string mamba_refusal(const ModelParts& parts) {
  return test::refusal_of<FileError>([&] { load_weights(*MambaModel(parts).source, *make_cpu_backend(1)); });
}

std::vector<std::string> facts_of(const ModelConfig& config) {
  std::vector<std::string> facts;
  for (const ConfigFact& fact : config_facts(config))
    facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
  return facts;
}

TEST(MambaModel, LayersWithoutKvHeadsAreMamba) {
  const MambaModel model(tiny_model("granitehybrid"));
  const ModelConfig& config = model.config();
  EXPECT_TRUE(config.is_mamba(0));
  EXPECT_FALSE(config.is_mamba(1));
  EXPECT_TRUE(config.layer(0).has_ffn && config.layer(1).has_ffn);
  EXPECT_EQ(config.num_state_layers(), 1);
  EXPECT_EQ(config.qkv_size(0), 24 + 48 + 4) << "z, channels, dt";
  EXPECT_EQ(config.kv_size(0), 0);
  EXPECT_EQ(config.output_size(0), 24);
  EXPECT_EQ(config.layer(0).rope, LayerConfig::kNoRope);
  EXPECT_EQ(config.layer(1).rope, 0);
  const std::vector<std::string> facts = facts_of(config);
  EXPECT_THAT(facts,
              Contains("Mamba-2, 4 heads of 6 in 2 groups, states of 6, convolution over 3 tokens: 0"));
  EXPECT_THAT(facts, Contains("attention, full, RoPE 0: 1"));
  ModelParts parts = tiny_model("granitehybrid");
  parts.keys["granitehybrid.rope.scaling.finetuned"] = false;
  EXPECT_EQ(MambaModel(parts).config().layer(1).rope, LayerConfig::kNoRope);
}

TEST(MambaModel, LayersMayBeSingleBlocks) {
  for (const int32_t experts : {0, 4}) {
    const std::string arch = experts > 0 ? "nemotron_h_moe" : "nemotron_h";
    const MambaModel model(tiny_model(arch, experts));
    const ModelConfig& config = model.config();
    ASSERT_EQ(config.num_layers, 3);
    EXPECT_TRUE(config.is_mamba(0) && !config.layer(0).has_ffn);
    EXPECT_TRUE(config.attends(1) && !config.layer(1).has_ffn);
    EXPECT_TRUE(config.layer(2).is_only_ffn && config.layer(2).has_ffn);
    EXPECT_FALSE(config.attends(2) || config.layer(2).has_state());
    EXPECT_EQ(config.layer(1).rope, LayerConfig::kNoRope);
    EXPECT_EQ(config.num_expert_layers(), experts > 0 ? 1 : 0);
    EXPECT_EQ(config.num_state_layers(), 1);
    EXPECT_THAT(facts_of(config), Contains("feed-forward alone: 2"));
    EXPECT_THAT(facts_of(config), Contains(experts > 0 ? "feed-forward: squared ReLU of 64 an expert"
                                                       : "feed-forward: squared ReLU of 64"));
    const auto backend = make_cpu_backend(1);
    const ModelWeights weights = load_weights(*model.source, *backend);
    EXPECT_FALSE(weights.layers[1].ffn_norm);
    EXPECT_FALSE(weights.layers[2].attn_norm);
    EXPECT_EQ(weights.layers[2].first_norm().data, weights.layers[2].ffn_norm.data);
    EXPECT_EQ(weights.layers[2].gate.data, experts > 0 ? weights.layers[2].up.data : nullptr);
  }
}

/// Arrays count layers that only predict further tokens too; the norm's epsilon may stand under the key of layer norms.
TEST(MambaModel, SingleBlocksHaveKeysOfTheirOwn) {
  ModelParts parts = tiny_model("nemotron_h");
  parts.keys["nemotron_h.block_count"] = 4u;
  parts.keys["nemotron_h.nextn_predict_layers"] = 1u;
  parts.keys["nemotron_h.attention.head_count_kv"] = std::vector<int32_t>{0, 2, 0, 2};
  parts.keys["nemotron_h.feed_forward_length"] = std::vector<int32_t>{0, 0, 64, 64};
  parts.keys.erase("nemotron_h.attention.layer_norm_rms_epsilon");
  parts.keys["nemotron_h.attention.layer_norm_epsilon"] = 0.25f;
  EXPECT_EQ(mamba_refusal(parts), "");
  EXPECT_EQ(MambaModel(parts).config().norm_eps, 0.25f);
  parts.keys["nemotron_h.feed_forward_length"] = std::vector<int32_t>{0, 0, 64};
  EXPECT_THAT(mamba_refusal(parts),
              HasSubstr("feed_forward_length has 3 elements, expected one for each of 4"));
  parts = tiny_model("nemotron_h");
  parts.keys["nemotron_h.feed_forward_length"] = std::vector<int32_t>{0, 64, 64};
  EXPECT_THAT(mamba_refusal(parts), HasSubstr("feed_forward_length is not 0 in layer 1, which has KV heads"));
  parts.keys["nemotron_h.feed_forward_length"] = std::vector<int32_t>{0, 0, -1};
  EXPECT_THAT(mamba_refusal(parts), HasSubstr("feed_forward_length is -1"));
  parts = tiny_model("granitehybrid");
  parts.keys.erase("granitehybrid.attention.layer_norm_rms_epsilon");
  EXPECT_THAT(mamba_refusal(parts), HasSubstr("layer_norm_rms_epsilon is missing"));
}

TEST(MambaModel, KeysOutOfRangeAreRefusedByName) {
  const std::string arch = "granitehybrid.";
  for (const auto& [key, value, refusal] :
       {std::tuple{"ssm.conv_kernel", 1u, "ssm.conv_kernel is 1, expected 2 to 16"},
        {"ssm.state_size", 0u, "ssm.state_size is 0, expected 1 to 1024"},
        {"ssm.group_count", 3u,
         "ssm.time_step_rank is 4, expected a multiple of granitehybrid.ssm.group_count = 3"},
        {"ssm.inner_size", 25u,
         "ssm.inner_size is 25, expected granitehybrid.ssm.time_step_rank = 4 heads"}}) {
    ModelParts parts = tiny_model("granitehybrid");
    parts.keys[arch + key] = value;
    EXPECT_THAT(mamba_refusal(parts), HasSubstr(refusal));
    parts.keys.erase(arch + key);
    EXPECT_THAT(mamba_refusal(parts), HasSubstr(fmt::format("{} is missing", key)));
  }
  ModelParts parts = tiny_model("granitehybrid");
  parts.keys[arch + "attention.head_count_kv"] = std::vector<int32_t>{0, 0};
  EXPECT_THAT(mamba_refusal(parts), HasSubstr("head_count_kv is 0 in all layers"));
}

TEST(MambaModel, TensorsAreHeldAgainstTheConfiguration) {
  EXPECT_EQ(mamba_refusal(tiny_model("granitehybrid")), "");
  EXPECT_EQ(mamba_refusal(tiny_model("granitehybrid", 4)), "");
  for (const auto& [tensor, dims, expected] :
       {std::tuple{"ssm_in.weight", std::vector<uint64_t>{32, 75},
                   "expected [76, 32] from granitehybrid.ssm.inner_size"},
        {"ssm_conv1d.weight", {4, 48}, "expected [48, 3] from granitehybrid.ssm.conv_kernel"},
        {"ssm_conv1d.bias", {47}, "expected [48]"},
        {"ssm_a", {4}, "expected [4, 1]"},
        {"ssm_d", {1, 5}, "expected [4, 1]"},
        {"ssm_norm.weight", {24}, "expected [2, 12]"},
        {"ssm_out.weight", {32, 24}, "expected [32, 24]"}}) {
    ModelParts parts = tiny_model("granitehybrid");
    parts.tensors[fmt::format("blk.0.{}", tensor)] = {DType::f32, dims, {}};
    EXPECT_THAT(mamba_refusal(parts), HasSubstr(expected)) << tensor;
  }
  ModelParts parts = tiny_model("granitehybrid");
  parts.tensors.erase("blk.0.ssm_conv1d.bias");
  EXPECT_EQ(mamba_refusal(parts), "") << "the bias is optional";
  parts.tensors["blk.0.attn_q.weight"] = {DType::f32, {32, 32}, {}};
  EXPECT_THAT(mamba_refusal(parts), HasSubstr("tensor blk.0.attn_q.weight is not part of architecture"));
  parts = tiny_model("nemotron_h");
  parts.tensors["blk.0.ffn_norm.weight"] = parts.tensors["blk.0.attn_norm.weight"];
  EXPECT_THAT(mamba_refusal(parts), HasSubstr("tensor blk.0.ffn_norm.weight is not part of architecture"));
}

TEST(MambaModel, StatesHaveMemoryOfTheirOwn) {
  const MambaModel model(tiny_model("nemotron_h"));
  const auto backend = make_cpu_backend(1);
  const int64_t conv = 2 * 48, scan = 24 * 6;
  EXPECT_EQ(RecurrentStatePool::slot_bytes(model.config()), (conv + scan) * sizeof(float));
  const RecurrentStatePool pool(*backend, model.config(), 3);
  EXPECT_EQ(pool.bytes(), 3 * (conv + scan) * sizeof(float));
  EXPECT_EQ(pool.layer(0).num_slots, 3);
  EXPECT_EQ(pool.layer(1).conv, nullptr);
  EXPECT_EQ(pool.layer(2).conv, nullptr) << "a feed-forward block has no state";
  const KvCache kv(*backend, model.config(), {}, DType::f32, 4, 16);
  EXPECT_EQ(kv.layer(0).k, nullptr);
  EXPECT_EQ(kv.layer(2).k, nullptr);
  EXPECT_EQ(kv.bytes(), 4 * 16 * 2 * 16 * sizeof(float)) << "keys and values of one layer";
}

TEST(MambaModel, OpsAreCountedByTheProfile) {
  const MambaModel model(tiny_model("granitehybrid"));
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
  EXPECT_EQ(work("mamba_in").flops, 8 * 2 * 32 * 76);
  const KernelWork conv = work("mamba_conv");
  EXPECT_EQ(conv.bytes_read, (8 * 48 + 2 * 2 * 48 + 3 * 48 + 48) * 4) << "inputs, states, weights, bias";
  const KernelWork scan = work("mamba_scan");
  EXPECT_EQ(scan.bytes_read, (8 * (48 + 24 + 4) + 2 * 144 + 3 * 4) * 4) << "inputs, states, numbers of heads";
  EXPECT_EQ(scan.bytes_written, (8 * 24 + 2 * 144) * 4);
  EXPECT_EQ(scan.flops, 8 * (5 * 144 + 7 * 24));
  EXPECT_EQ(work("mamba_norm").bytes_written, 8 * 24 * 4);
  EXPECT_EQ(work("mamba_out").flops, 8 * 2 * 24 * 32);
}

/// A rank has some groups, and the heads of these, in each part of the tensors.
TEST(MambaModel, RanksHaveGroups) {
  const MambaModel model(tiny_model("nemotron_h"));
  const auto rows = [](const HostTensor& tensor, int64_t first, int64_t count) {
    const auto* data = static_cast<const float*>(tensor.data);
    const int64_t cols = tensor.rows == 1 ? 1 : tensor.cols;
    return std::vector<float>(data + first * cols, data + (first + count) * cols);
  };
  for (int32_t rank = 0; rank < 2; ++rank) {
    const ModelShard shard(*model.source, {rank, 2});
    EXPECT_EQ(shard.config().delta_net.key_heads, 1);
    EXPECT_EQ(shard.config().delta_net.value_heads, 2);
    const auto expect_parts = [&](const char* name, const std::vector<std::pair<int64_t, int64_t>>& parts) {
      const std::string tensor = fmt::format("blk.0.{}", name);
      int64_t first = 0, own = 0;  // in the whole tensor and in the rank's
      for (const auto& [size, own_size] : parts) {
        EXPECT_EQ(rows(*shard.find_tensor(tensor), own, own_size),
                  rows(*model.source->find_tensor(tensor), first + rank * own_size, own_size))
            << name;
        first += size;
        own += own_size;
      }
    };
    expect_parts("ssm_in.weight", {{24, 12}, {24, 12}, {12, 6}, {12, 6}, {4, 2}});
    expect_parts("ssm_conv1d.weight", {{24, 12}, {12, 6}, {12, 6}});
    expect_parts("ssm_conv1d.bias", {{24, 12}, {12, 6}, {12, 6}});
    expect_parts("ssm_dt.bias", {{4, 2}});
    expect_parts("ssm_a", {{4, 2}});
    expect_parts("ssm_d", {{4, 2}});
    EXPECT_EQ(shard.find_tensor("blk.0.ssm_norm.weight")->rows, 1);
    EXPECT_EQ(shard.find_tensor("blk.0.ssm_out.weight")->cols, 12);
  }
  ModelConfig one = model.config();
  one.delta_net.key_heads = 1;
  EXPECT_THAT(test::refusal_of([&] {
                shard_config(one, {0, 2});
              }),
              HasSubstr("groups of Mamba-2 of model model.gguf are 1, not a multiple of 2"));
}

TEST(MambaModel, RunsOnCuda) {
  EXPECT_NO_THROW(
      check_shapes(*MambaModel(tiny_model("nemotron_h")).source, cuda::shape_limits(DType::bf16), "cuda"));
  ModelParts parts = tiny_model("granitehybrid");
  parts.keys["granitehybrid.ssm.state_size"] = 257u;
  EXPECT_THAT(test::refusal_of<FileError>(
                  [&] { check_shapes(*MambaModel(parts).source, cuda::shape_limits(DType::bf16), "cuda"); }),
              HasSubstr("ssm.state_size: 257, expected at most 256"));
}

}  // namespace
}  // namespace minfer
