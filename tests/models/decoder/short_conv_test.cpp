// Gated short convolutions in files: keys, the tensors of a layer, its memory, its share of a model, and refusals.
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
struct ConvModel {
  explicit ConvModel(const ModelParts& parts)
      : bytes(parts.build()), source(open_model_in_memory(bytes, "model.gguf")) {}
  const ModelConfig& config() const { return source->config(); }

  std::vector<std::byte> bytes;
  std::unique_ptr<ModelSource> source;
};

std::string conv_refusal(const ModelParts& parts) {
  return test::refusal_of<FileError>([&] { load_weights(*ConvModel(parts).source, *make_cpu_backend(1)); });
}

TEST(ShortConvModel, LayersWithoutKvHeadsAreConvolutions) {
  ModelParts parts = tiny_model("lfm2");
  for (const bool is_first : {true, false}) {
    parts.keys["lfm2.attention.head_count_kv"] =
        is_first ? std::vector<int32_t>{0, 2} : std::vector<int32_t>{2, 0};
    const auto bytes = parts.build();
    const ModelConfig config = read_config(GgufFile::from_memory(bytes, "model.gguf"));
    const int32_t conv = is_first ? 0 : 1, attending = 1 - conv;
    EXPECT_TRUE(config.is_short_conv(conv));
    EXPECT_FALSE(config.is_short_conv(attending));
    EXPECT_EQ(config.conv_size, 3);
    EXPECT_EQ(config.num_kv_heads, 2);
    EXPECT_TRUE(config.has_like_heads());
    EXPECT_EQ(config.qkv_size(conv), 96);
    EXPECT_EQ(config.kv_size(conv), 0);
    EXPECT_EQ(config.output_size(conv), 32);
    EXPECT_EQ(config.qkv_size(attending), 32 + 2 * 16);
    EXPECT_EQ(config.layer(conv).rope, LayerConfig::kNoRope);
    EXPECT_EQ(config.layer(attending).rope, 0);
    std::vector<std::string> facts;
    for (const ConfigFact& fact : config_facts(config))
      facts.push_back(fmt::format("{}: {}", fact.name, fact.value));
    EXPECT_THAT(facts, Contains(fmt::format("short convolutions over 3 tokens: {}", conv)));
    EXPECT_THAT(facts, Contains(fmt::format("attention, full, RoPE 0: {}", attending)));
  }
}

TEST(ShortConvModel, KeysOutOfRangeAreRefusedByName) {
  ModelParts parts = tiny_model("lfm2");
  for (const uint32_t size : {1u, 17u}) {
    parts.keys["lfm2.shortconv.l_cache"] = size;
    EXPECT_THAT(conv_refusal(parts),
                HasSubstr(fmt::format("lfm2.shortconv.l_cache is {}, expected 2 to 16", size)));
  }
  parts.keys.erase("lfm2.shortconv.l_cache");
  EXPECT_THAT(conv_refusal(parts), HasSubstr("lfm2.shortconv.l_cache is missing"));
  parts = tiny_model("lfm2");
  parts.keys["lfm2.attention.head_count_kv"] = std::vector<int32_t>{0, 0};
  EXPECT_THAT(conv_refusal(parts), HasSubstr("lfm2.attention.head_count_kv is 0 in all layers"));
  parts.keys["lfm2.attention.head_count_kv"] = std::vector<int32_t>{0, 3};
  EXPECT_THAT(conv_refusal(parts), HasSubstr("expected a multiple of lfm2.attention.head_count_kv = 3"));
  parts = tiny_model("qwen3");
  parts.keys["qwen3.attention.head_count_kv"] = std::vector<int32_t>{0, 2};
  EXPECT_THAT(conv_refusal(parts), HasSubstr("head_count_kv is 0, expected 1 to 4096"));
}

TEST(ShortConvModel, TensorsAreHeldAgainstTheConfiguration) {
  EXPECT_EQ(conv_refusal(tiny_model("lfm2")), "");
  EXPECT_EQ(conv_refusal(tiny_model("lfm2moe", 4)), "");
  ModelParts parts = tiny_model("lfm2");
  parts.tensors["blk.0.shortconv.conv.weight"].dims = {4, 32};
  EXPECT_THAT(
      conv_refusal(parts),
      HasSubstr("shortconv.conv.weight: shape [32, 4], expected [32, 3] from lfm2.shortconv.l_cache"));
  parts = tiny_model("lfm2");
  parts.tensors["blk.0.attn_q.weight"] = {DType::f32, {32, 32}, {}};
  EXPECT_THAT(conv_refusal(parts), HasSubstr("tensor blk.0.attn_q.weight is not part of architecture lfm2"));
  parts = tiny_model("lfm2");
  parts.tensors["output_norm.weight"] = parts.tensors["token_embd_norm.weight"];
  EXPECT_THAT(conv_refusal(parts), HasSubstr("tensor output_norm.weight is not part of architecture lfm2"));
  parts.tensors.erase("token_embd_norm.weight");
  EXPECT_THAT(conv_refusal(parts), HasSubstr("tensor token_embd_norm.weight is missing"));
  for (const auto& [name, size] : {std::pair{"in_proj", 96u}, {"conv", 32u}, {"out_proj", 32u}}) {
    parts = tiny_model("lfm2");
    auto& bias = parts.tensors[fmt::format("blk.0.shortconv.{}.bias", name)] = {DType::f32, {size}, {}};
    EXPECT_EQ(conv_refusal(parts), "") << name;
    bias.dims = {size + 1};
    EXPECT_THAT(conv_refusal(parts), HasSubstr(fmt::format("expected [{}]", size))) << name;
  }
}

TEST(ShortConvModel, WeightsAreTransposedAndStatesHaveMemoryOfTheirOwn) {
  ModelParts parts = tiny_model("lfm2");
  parts.tensors["blk.0.shortconv.conv.bias"] = {DType::f16, {32}, {}};
  const ConvModel model(parts);
  const auto backend = make_cpu_backend(1);
  const ModelWeights weights = load_weights(*model.source, *backend);
  const ShortConvWeights& conv = weights.layers[0].short_conv;
  EXPECT_EQ(conv.conv.rows, 3);
  EXPECT_EQ(conv.bias.cols, 32);
  EXPECT_FALSE(conv.in_bias);
  const auto* in_file =
      reinterpret_cast<const float*>(model.source->find_tensor("blk.0.shortconv.conv.weight")->data);
  EXPECT_EQ(static_cast<const float*>(conv.conv.data)[32 + 7], in_file[7 * 3 + 1]) << "input 1 of channel 7";
  EXPECT_FALSE(weights.layers[1].short_conv.in);

  EXPECT_EQ(RecurrentStatePool::slot_bytes(model.config()), 2 * 32 * sizeof(float));
  const RecurrentStatePool pool(*backend, model.config(), 3);
  EXPECT_EQ(pool.bytes(), 3 * 2 * 32 * sizeof(float));
  EXPECT_EQ(pool.layer(0).num_slots, 3);
  EXPECT_EQ(pool.layer(1).conv, nullptr);
  for (int32_t i = 0; i < 3 * 64; ++i)
    pool.layer(0).conv[i] = static_cast<float>(i);
  pool.copy(*backend, {.from = 2, .to = 0});
  for (int32_t i = 0; i < 3 * 64; ++i)
    ASSERT_EQ(pool.layer(0).conv[i], static_cast<float>(i < 64 ? i + 128 : i)) << i;
  const KvCache kv(*backend, model.config(), {}, DType::f32, 4, 16);
  EXPECT_EQ(kv.layer(0).k, nullptr);
  EXPECT_EQ(kv.bytes(), 4 * 16 * 2 * 16 * sizeof(float)) << "keys and values of one layer";
}

TEST(ShortConvModel, OpsAreCountedByTheProfile) {
  const ConvModel model(tiny_model("lfm2"));
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
  EXPECT_EQ(work("conv_in").flops, 8 * 2 * 32 * 96);
  const KernelWork conv = work("short_conv");
  EXPECT_EQ(conv.bytes_read, (8 * 96 + 2 * 64 + 3 * 32) * 4) << "inputs, states, weights";
  EXPECT_EQ(conv.bytes_written, (8 * 32 + 2 * 64) * 4);
  EXPECT_EQ(conv.flops, 8 * 2 * (3 * 32 + 32));
  EXPECT_EQ(work("conv_out").flops, 8 * 2 * 32 * 32);
}

/// A rank has rows of each third, and the columns of the same channels behind them.
TEST(ShortConvModel, RanksHaveChannels) {
  const auto model = open_model(source_path("tests/golden/lfm2moe.gguf"));
  const auto rows = [](const HostTensor& tensor, int64_t first, int64_t count) {
    const auto* data = static_cast<const float*>(tensor.data);
    const int64_t cols = tensor.rows == 1 ? 1 : tensor.cols;
    return std::vector<float>(data + first * cols, data + (first + count) * cols);
  };
  for (int32_t rank = 0; rank < 2; ++rank) {
    const ModelShard shard(*model, {rank, 2});
    EXPECT_EQ(shard.config().conv_channels, 16);
    EXPECT_EQ(shard.config().conv_state(), 3 * 16);
    for (const char* name : {"blk.0.shortconv.in_proj.weight", "blk.0.shortconv.in_proj.bias"}) {
      for (int64_t third = 0; third < 3; ++third)
        EXPECT_EQ(rows(*shard.find_tensor(name), third * 16, 16),
                  rows(*model->find_tensor(name), third * 32 + rank * 16, 16))
            << name;
    }
    for (const char* name : {"blk.0.shortconv.conv.weight", "blk.0.shortconv.conv.bias"})
      EXPECT_EQ(rows(*shard.find_tensor(name), 0, 16), rows(*model->find_tensor(name), rank * 16, 16))
          << name;
    EXPECT_EQ(shard.find_tensor("blk.0.shortconv.out_proj.weight")->cols, 16);
    EXPECT_EQ(shard.find_tensor("blk.0.shortconv.out_proj.bias")->cols, 32);
  }
  ModelConfig odd = model->config();
  odd.conv_channels = 33;
  EXPECT_THAT(test::refusal_of([&] {
                shard_config(odd, {0, 2});
              }),
              HasSubstr("channels of the short convolutions of model lfm2moe are 33, not a multiple of 2"));
}

TEST(ShortConvModel, RunsOnCuda) {
  EXPECT_NO_THROW(
      check_shapes(*ConvModel(tiny_model("lfm2")).source, cuda::shape_limits(DType::bf16), "cuda"));
}

}  // namespace
}  // namespace minfer
