// Latent attention in files: its keys, its tensors in both layouts, and refusals.
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "kernels/half.h"
#include "models/decoder/config/config_facts.h"
#include "models/decoder/memory/kv_cache.h"
#include "models/decoder/weights/shard.h"
#include "models/decoder/weights/weights.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using test::tiny_model;
using ::testing::HasSubstr;

constexpr const char* kArch = "deepseek2";
constexpr int64_t kHeads = 4, kKeyRows = 8, kValueRows = 8, kRank = 16;

/// Files of converters until April 2025: only keys for heads, one tensor for keys and values.
ModelParts old_model(DType dtype = DType::f32) {
  ModelParts model = tiny_model(kArch);
  model.keys["deepseek2.attention.head_count_kv"] = 4u;
  model.keys["deepseek2.attention.key_length"] = 12u;
  model.keys["deepseek2.attention.value_length"] = 8u;
  for (const char* key : {"key_length_mla", "value_length_mla"})
    model.keys.erase(fmt::format("deepseek2.attention.{}", key));
  for (const char* blk : {"blk.0.", "blk.1."}) {
    for (const char* part : {"attn_k_b.weight", "attn_v_b.weight"})
      model.tensors.erase(std::string(blk) + part);
    model.tensors[std::string(blk) + "attn_kv_b.weight"] = {
        dtype, {kRank, static_cast<uint64_t>(kHeads * (kKeyRows + kValueRows))}, {}};
  }
  return model;
}

ModelConfig latent_config_of(const ModelParts& model) {
  const std::vector<std::byte> bytes = model.build();
  return read_config(GgufFile::from_memory(bytes, "model.gguf"));
}

std::string latent_refusal(const ModelParts& model) {
  return test::refusal_of<FileError>([&] {
    const std::vector<std::byte> bytes = model.build();
    const auto source = open_model_in_memory(bytes, "model.gguf");
    const auto backend = make_cpu_backend(1);
    load_weights(*source, *backend);
  });
}

std::string latent_refusal_with(std::string_view key, const ModelParts::Value& value,
                                ModelParts model = tiny_model(kArch)) {
  model.keys[std::string(key)] = value;
  return latent_refusal(model);
}

TEST(LatentConfig, TakesOldAndNewKeys) {
  for (const ModelParts& model : {tiny_model(kArch), old_model()}) {
    const ModelConfig config = latent_config_of(model);
    EXPECT_TRUE(config.is_latent());
    EXPECT_EQ(config.num_heads, 4);
    EXPECT_EQ(config.num_kv_heads, 1);
    EXPECT_EQ(config.head_size, 20);
    EXPECT_EQ(config.rotary_size, 4);
    EXPECT_EQ(config.latent.q_rank, 0);
    EXPECT_EQ(config.latent.kv_rank, 16);
    EXPECT_EQ(config.latent.key_size, 12);
    EXPECT_EQ(config.latent.value_size, 8);
    EXPECT_EQ(config.qkv_size(), 4 * 12 + 20);
    EXPECT_EQ(config.q_size(), 4 * 20);
    EXPECT_EQ(config.attended_size(), 4 * 16);
    EXPECT_EQ(config.output_size(), 4 * 8);
    EXPECT_FLOAT_EQ(config.attention_scale, 1.0f / std::sqrt(12.0f));
    EXPECT_EQ(latent_refusal(model), "");
  }
}

TEST(LatentConfig, CountsOneRowATokenAndLayer) {
  const ModelConfig config = latent_config_of(tiny_model(kArch));
  EXPECT_EQ(KvCache::block_bytes(config, {}, DType::bf16, 16), size_t{2} * 16 * 20 * 2);
  const auto backend = make_cpu_backend(1);
  const KvCache cache(*backend, config, {}, DType::bf16, 3, 16);
  EXPECT_EQ(cache.bytes(), size_t{3} * 2 * 16 * 20 * 2);
  EXPECT_EQ(cache.layer(1).v, cache.layer(1).k);
  EXPECT_EQ(static_cast<std::byte*>(cache.layer(1).k) - static_cast<std::byte*>(cache.layer(0).k),
            3 * 16 * 20 * 2);
}

/// mscale_all_dim of 1 and a stretch by 40, as in DeepSeek V3: scores of whole heads grow; the rotated elements alone do not.
TEST(LatentConfig, YarnGrowsTheAttentionScale) {
  ModelParts model = tiny_model(kArch);
  model.keys["deepseek2.rope.scaling.type"] = std::string("yarn");
  model.keys["deepseek2.rope.scaling.factor"] = 40.0f;
  model.keys["deepseek2.rope.scaling.original_context_length"] = 4096u;
  EXPECT_NEAR(latent_config_of(model).ropes.front().scaling.magnitude, 1.0 + 0.1 * std::log(40.0), 1e-6);
  EXPECT_FLOAT_EQ(latent_config_of(model).attention_scale, 1.0f / std::sqrt(12.0f));
  model.keys["deepseek2.rope.scaling.yarn_log_multiplier"] = 0.1f;
  const ModelConfig config = latent_config_of(model);
  const double growth = 1.0 + 0.1 * std::log(40.0);
  EXPECT_EQ(config.ropes.front().scaling.magnitude, 1.0f);
  EXPECT_NEAR(config.attention_scale, growth * growth / std::sqrt(12.0), 1e-6);
}

TEST(LatentConfig, RefusesHostileKeysByName) {
  const std::vector<ModelParts::Value> bad{ModelParts::Value(0u), -1,   0x7fffffff,
                                           int64_t{1} << 40,      1.5f, std::string("16")};
  for (const char* part : {"attention.kv_lora_rank", "attention.key_length_mla", "attention.value_length_mla",
                           "attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    const std::string key = fmt::format("deepseek2.{}", part);
    for (size_t i = 0; i < bad.size(); ++i)
      EXPECT_THAT(latent_refusal_with(key, bad[i]), HasSubstr(key)) << "value " << i;
  }
  for (size_t i = 1; i < bad.size(); ++i)
    EXPECT_THAT(latent_refusal_with("deepseek2.attention.q_lora_rank", bad[i]),
                HasSubstr("deepseek2.attention.q_lora_rank"))
        << "value " << i;
  for (const char* key : {"attention.kv_lora_rank", "rope.dimension_count", "attention.value_length_mla"}) {
    ModelParts model = tiny_model(kArch);
    model.keys.erase(fmt::format("deepseek2.{}", key));
    EXPECT_THAT(latent_refusal(model), HasSubstr(fmt::format("deepseek2.{} is missing", key)));
  }
  EXPECT_THAT(latent_refusal_with("deepseek2.attention.key_length", 21u),
              HasSubstr("deepseek2.attention.key_length is 21, expected 20"));
  EXPECT_THAT(latent_refusal_with("deepseek2.attention.value_length", 20u),
              HasSubstr("deepseek2.attention.value_length is 20, expected 16"));
  EXPECT_THAT(latent_refusal_with("deepseek2.rope.dimension_count", 12u),
              HasSubstr("expected an even number below deepseek2.attention.key_length_mla = 12"));
  EXPECT_THAT(latent_refusal_with("deepseek2.attention.head_count_kv", 2u),
              HasSubstr("deepseek2.attention.head_count_kv is 2, expected 1 or 4"));
  EXPECT_THAT(latent_refusal_with("deepseek2.attention.temperature_scale", 0.1f),
              HasSubstr("deepseek2.attention.temperature_scale is 0.1: not supported without YaRN"));
  EXPECT_THAT(latent_refusal_with("deepseek2.attention.sliding_window", 8u),
              HasSubstr("deepseek2.attention.sliding_window: not supported"));
  ModelParts model = tiny_model(kArch);
  model.keys["deepseek2.rope.scaling.type"] = std::string("yarn");
  model.keys["deepseek2.rope.scaling.factor"] = 40.0f;
  EXPECT_THAT(latent_refusal_with("deepseek2.rope.scaling.yarn_log_multiplier", -0.1f, model),
              HasSubstr("deepseek2.rope.scaling.yarn_log_multiplier"));
}

TEST(LatentConfig, NamesTensorsOfAnotherShape) {
  const auto with_dims = [](const char* tensor, std::vector<uint64_t> dims, ModelParts model) {
    model.tensors[tensor].dims = std::move(dims);
    return latent_refusal(model);
  };
  EXPECT_THAT(with_dims("blk.1.attn_kv_b.weight", {16, 63}, old_model()),
              HasSubstr("tensor blk.1.attn_kv_b.weight: shape [63, 16], expected [64, 16]"));
  EXPECT_THAT(with_dims("blk.1.attn_k_b.weight", {8, 15, 4}, tiny_model(kArch)),
              HasSubstr("from deepseek2.attention.kv_lora_rank"));
  EXPECT_THAT(with_dims("blk.1.attn_v_b.weight", {16, 8, 3}, tiny_model(kArch)),
              HasSubstr("from deepseek2.attention.head_count"));
  EXPECT_THAT(with_dims("blk.0.attn_kv_a_mqa.weight", {32, 21}, tiny_model(kArch)),
              HasSubstr("tensor blk.0.attn_kv_a_mqa.weight"));
}

TEST(LatentConfig, IsToldToPeople) {
  std::string all;
  for (const ConfigFact& fact : config_facts(latent_config_of(tiny_model(kArch))))
    all += fmt::format("{}: {}\n", fact.name, fact.value);
  EXPECT_THAT(all, HasSubstr("heads: 4, queries of 12, values of 8"));
  EXPECT_THAT(all, HasSubstr("latent attention: rank 16 for keys and values, 20 in the cache"));
}

double latent_element(const HostTensor& tensor, int64_t matrix, int64_t row, int64_t col) {
  const std::byte* at = tensor.row(matrix, row);
  if (tensor.dtype == DType::f32) {
    float value = 0.0f;
    std::memcpy(&value, at + col * 4, sizeof value);
    return static_cast<double>(value);
  }
  uint16_t half = 0;
  std::memcpy(&half, at + col * 2, sizeof half);
  return static_cast<double>(tensor.dtype == DType::bf16 ? bf16_to_f32(half) : f16_to_f32(half));
}

/// Both parts of attn_kv_b; the part for keys is transposed.
TEST(LatentTensors, OldFilesAreSplit) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    const std::vector<std::byte> bytes = old_model(dtype).build();
    const GgufFile file = GgufFile::from_memory(bytes, "model.gguf");
    const HostTensor& whole = *file.find_tensor("blk.1.attn_kv_b.weight");
    const auto source = open_model_in_memory(bytes, "model.gguf");
    const HostTensor* keys = source->find_tensor("blk.1.attn_k_b.weight");
    const HostTensor* values = source->find_tensor("blk.1.attn_v_b.weight");
    ASSERT_TRUE(keys != nullptr && values != nullptr);
    EXPECT_EQ(source->find_tensor("blk.1.attn_kv_b.weight"), nullptr);
    EXPECT_EQ(keys->shape(), (std::vector<int64_t>{kHeads, kRank, kKeyRows}));
    EXPECT_EQ(values->shape(), (std::vector<int64_t>{kHeads, kValueRows, kRank}));
    EXPECT_EQ(keys->dtype, dtype);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t c = 0; c < kRank; ++c) {
        for (int64_t r = 0; r < kKeyRows; ++r)
          EXPECT_EQ(latent_element(*keys, h, c, r),
                    latent_element(whole, 0, h * (kKeyRows + kValueRows) + r, c));
        for (int64_t r = 0; r < kValueRows; ++r)
          EXPECT_EQ(latent_element(*values, h, r, c),
                    latent_element(whole, 0, h * (kKeyRows + kValueRows) + kKeyRows + r, c));
      }
    }
  }
}

/// A rank has heads of both parts; the row of the cache is whole.
TEST(LatentTensors, RanksHaveHeadsOfThem) {
  const auto source = make_synthetic_model("tiny-latent:f32");
  const ModelShard shard(*source, {1, 2});
  EXPECT_EQ(shard.config().num_heads, 4);
  EXPECT_EQ(shard.config().num_kv_heads, 1);
  EXPECT_EQ(shard.config().head_size, 576);
  for (const char* name : {"blk.0.attn_k_b.weight", "blk.0.attn_v_b.weight"}) {
    const HostTensor& whole = *source->find_tensor(name);
    const HostTensor& part = *shard.find_tensor(name);
    EXPECT_EQ(part.count, 4);
    EXPECT_EQ(latent_element(part, 0, 3, 5), latent_element(whole, 4, 3, 5));
    EXPECT_EQ(latent_element(part, 3, 127, 127), latent_element(whole, 7, 127, 127));
  }
  EXPECT_EQ(shard.find_tensor("blk.0.attn_q_b.weight")->rows, 4 * 192);
  EXPECT_EQ(shard.find_tensor("blk.0.attn_q_a.weight")->rows, 256);
  EXPECT_EQ(shard.find_tensor("blk.0.attn_kv_a_mqa.weight")->rows, 576);
  EXPECT_EQ(shard.find_tensor("blk.0.attn_output.weight")->cols, 4 * 128);
  const auto backend = make_cpu_backend(1);
  EXPECT_EQ(load_weights(shard, *backend).layers.size(), 2u);
}

}  // namespace
}  // namespace minfer
